// SPDX-License-Identifier: Apache-2.0
//
// Manages connections in the control plane: admits or refuses requests that reactors report, counts and
// drains connections, and closes the connections of client processes that have exited. Its state is derived
// from the connection tables even if events are lost, so that a new control plane can take over.
// Single-threaded.
#pragma once

#include <array>
#include <cstdint>

#include "controlplane/cm/connection_monitor.h"
#include "controlplane/policy/admission.h"
#include "dataplane/base/net_address.h"
#include "dataplane/base/owned.h"
#include "dataplane/base/thread_owner.h"
#include "dataplane/segment/messages.h"
#include "dataplane/segment/tables.h"

namespace sluice {
namespace config {
struct Config;
}
namespace events {
class Journal;
}
namespace policy {
class CreditController;
}
namespace segment {
struct Layout;
class DesiredStateWriter;
}  // namespace segment
namespace tasks {
class Arena;
}
}  // namespace sluice

namespace sluice::cm {

struct AgentStatistics;
class Connections;
class Outbox;

class ConnectionController final : private ConnectionMonitor::Listener {
 public:
  /// All referenced objects outlive this object. `outbox` may have other users.
  ConnectionController(segment::Layout& layout, const config::Config& config,
                       const policy::CreditController& credits, Outbox& outbox, events::Journal& journal,
                       tasks::Arena& tasks);
  ~ConnectionController();

  /// Applies the limits of the changed configuration.
  void reconfigure();
  /// Starts or stops draining. While draining, new connections are refused, and each open connection is
  /// closed once it has no calls.
  void set_draining(bool draining);
  bool draining() const { return admission_.draining(); }

  /// Takes over the connections in the tables at the start.
  void take_over();
  /// Handles the start of another data plane.
  void on_data_plane_changed(std::uint64_t now_ns);
  /// Handles all events of reactors, and scans a part of the tables. Returns true if there was an event.
  bool poll(std::uint64_t now_ns);
  const ConnectionMonitor& watch() const { return watch_; }
  const policy::Admission& admission() const { return admission_; }
  const policy::RefusalCounts& refusals() const { return reports_.refusals(); }
  /// Returns null if the driver does connection management itself (loopback).
  const AgentStatistics* agent() const;
  bool needs_new_process() const;
  std::uint32_t connections() const { return admission_.connections(); }

 private:
  void on_appeared(std::uint32_t reactor, std::uint32_t number, const SeenConnection& seen) override;
  void on_changed(std::uint32_t reactor, std::uint32_t number, const SeenConnection& seen) override;
  void on_gone(std::uint32_t reactor, std::uint32_t number, const SeenConnection& seen) override;
  void on_missed(std::uint32_t reactor, std::uint32_t number, const SeenConnection& expected) override;

  void on_event(std::uint32_t reactor, const segment::Event& event, std::uint64_t now_ns);
  void on_command_done(std::uint32_t reactor, const segment::Event& event, std::uint64_t now_ns);
  void expect(std::uint32_t reactor, const segment::Event& event, bool outgoing);
  segment::DesiredStateWriter wanted(std::uint32_t reactor);

  segment::Layout& layout_;
  const config::Config& config_;
  Outbox& outbox_;
  policy::Admission admission_;
  AdmissionTable book_;
  ConnectionReports reports_;
  const Owned<Connections> managed_;
  ConnectionMonitor watch_;
  /// Last incarnation of each reactor at the takeover. Later ones were created under this control plane.
  std::array<std::uint32_t, segment::kMaxReactors> inherited_{};
  std::uint64_t now_ns_ = 0;
  ThreadOwner owner_;  ///< thread of the loop
};

}  // namespace sluice::cm
