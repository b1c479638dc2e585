// SPDX-License-Identifier: Apache-2.0
//
// The data plane of one process: everything that a configuration asks for, built once, and the main thread's
// work while the reactors run. DPDK's environment is up.
#pragma once

#include <memory>
#include <vector>

#include "dataplane/base/stop_signal.h"
#include "dataplane/log/log_queue.h"
#include "dataplane/process/capture_service.h"
#include "dataplane/process/config_watch.h"
#include "dataplane/process/core.h"
#include "dataplane/process/devices.h"
#include "dataplane/process/exports.h"
#include "dataplane/process/heartbeat.h"
#include "dataplane/process/kept_connections.h"
#include "dataplane/segment/segment.h"

namespace sluice::process {

class DataPlane {
 public:
  /// Setup; throws SetupError. The segment outlives the data plane.
  DataPlane(const segment::ConfigBlock& config, segment::Segment& segment);

  /// The main thread, once: starts the reactors, and returns when `stop` has been requested, or a reactor has got a
  /// Shutdown, and all have ended. Throws SetupError.
  void run(const StopSignal& stop, const LogQueue& log);

 private:
  void launch_reactors();
  bool any_stopped() const;
  void main_loop(ProcessHeartbeat& heartbeat, KeptConnections* kept, const StopSignal& stop,
                 const LogQueue& log);
  void look_at_control_part();

  const segment::ConfigBlock config_;
  segment::Segment& segment_;
  segment::Layout& layout_;
  // Built in order and destroyed in reverse.
  Devices devices_;
  std::unique_ptr<ingress::Listener> listener_;  ///< null without the reverse gateway
  std::vector<std::unique_ptr<Core>> cores_;
  std::unique_ptr<Exports> exports_;
  bool control_part_cut_ = false;  ///< and said
};

}  // namespace sluice::process
