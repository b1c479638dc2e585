// SPDX-License-Identifier: Apache-2.0
//
// The control plane's part in connections: answers requests that reactors tell of, keeps count, reaps what
// dead client processes left. Its state is rebuilt from the connection table, so that any control plane can
// take over. One thread.
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

  /// The configuration has changed.
  void reconfigure() { admission_.set_limits(config_.admission_limits()); }
  void set_draining(bool draining) { admission_.set_draining(draining); }
  bool draining() const { return admission_.draining(); }

  /// Reads the tables: what is connected counts. At start, and when the data plane has been started anew.
  void rebuild();
  /// Drains the event rings. True when there was something.
  bool poll(std::uint64_t now_ns);
  /// Abandons connections whose client process is gone.
  void reap();
  const KeeperStatistics& statistics() const { return statistics_; }
  const policy::Admission& admission() const { return admission_; }
  /// Of connection management in the control plane; null where the driver has its own.
  const AgentStatistics* agent() const { return managed_ ? &managed_->statistics() : nullptr; }
  bool wants_new_process() const { return managed_ && managed_->wants_new_process(); }
  std::uint32_t connections() const { return admission_.connections(); }

 private:
  void on_request(std::uint32_t reactor, const segment::Event& event, std::uint64_t now_ns);
  bool command(std::uint32_t reactor, segment::Command command);

  segment::Layout& layout_;
  const config::Config& config_;
  policy::Admission admission_;
  KeeperStatistics statistics_;
  const ConnectionContext context_;
  std::unique_ptr<Connections> managed_;  ///< where the driver has no connection management of its own
  std::uint32_t next_command_ = 1;
  std::set<std::uint64_t> reaping_;
};

}  // namespace sluice::cm
