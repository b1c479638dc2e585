// SPDX-License-Identifier: Apache-2.0
//
// The control plane's part in connections: admits or refuses requests that reactors report, counts
// connections, and ends those of client processes that have died. Its state is rebuilt from the connection
// tables, so that a new control plane can take over. One thread.
#pragma once

#include <cstdint>
#include <memory>
#include <set>

#include "controlplane/cm/connections.h"
#include "controlplane/config/config.h"
#include "controlplane/policy/admission.h"
#include "controlplane/policy/credit_keeper.h"
#include "dataplane/segment/segment.h"

namespace sluice::cm {

class ConnectionKeeper {
 public:
  ConnectionKeeper(segment::Layout& layout, const config::Config& config,
                   const policy::CreditKeeper& credits);

  /// Takes the limits from the configuration, which has changed.
  void reconfigure() { admission_.set_limits(config_.admission_limits()); }
  void set_draining(bool draining) { admission_.set_draining(draining); }
  bool draining() const { return admission_.draining(); }

  /// Counts the connections in the tables. At start, and after a restart of the data plane.
  void rebuild();
  /// Handles all events of reactors. True when there was one.
  bool poll(std::uint64_t now_ns);
  /// Ends connections whose client process has died (loopback).
  void reap();
  const KeeperStatistics& statistics() const { return statistics_; }
  const policy::Admission& admission() const { return admission_; }
  /// Null where the driver does connection management itself (loopback).
  const AgentStatistics* agent() const { return managed_ ? &managed_->statistics() : nullptr; }
  bool needs_new_process() const { return managed_ && managed_->needs_new_process(); }
  std::uint32_t connections() const { return admission_.connections(); }

 private:
  void on_request(std::uint32_t reactor, const segment::Event& event, std::uint64_t now_ns);
  bool command(std::uint32_t reactor, segment::Command command);

  segment::Layout& layout_;
  const config::Config& config_;
  policy::Admission admission_;
  KeeperStatistics statistics_;
  const ConnectionContext context_;
  std::unique_ptr<Connections> managed_;  ///< null where the driver does it
  std::uint32_t next_command_ = 1;
  std::set<std::uint64_t> reaping_;
};

}  // namespace sluice::cm
