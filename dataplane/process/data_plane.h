// SPDX-License-Identifier: Apache-2.0
//
// Data plane of one process: builds all objects that a configuration requires, once, and does the main
// thread's work while the reactors run. Requires that DPDK's environment is initialized.
#pragma once

#include <memory>
#include <vector>

#include "dataplane/base/owned.h"
#include "dataplane/process/devices.h"
#include "dataplane/segment/segment.h"

namespace sluice {
class LogQueue;
class StopSignal;
}  // namespace sluice
namespace sluice::tcp_upstream {
class DuplicateRequestCache;
}
namespace sluice::tcp_clients {
class Listener;
}  // namespace sluice::tcp_clients

namespace sluice::process {

struct Core;
class Exports;
class KeptConnections;
class ProcessHeartbeat;

class DataPlane {
 public:
  /// Builds the data plane at setup. Throws SetupError. The segment outlives the data plane.
  DataPlane(const segment::ConfigBlock& config, segment::Segment& segment);
  ~DataPlane();

  /// Starts the reactors. Returns after `stop` has been requested, or a reactor has received a Shutdown, and
  /// all reactors have ended. Called once, by the main thread. Throws SetupError.
  void run(StopSignal& stop, const LogQueue& log);

 private:
  void launch_reactors();
  bool any_stopped() const;
  void main_loop(ProcessHeartbeat& heartbeat, KeptConnections* kept, StopSignal& stop, const LogQueue& log);
  void look_at_control_part();

  const segment::ConfigBlock config_;
  segment::Segment& segment_;
  segment::Layout& layout_;
  // Built in order and destroyed in reverse.
  Devices devices_;
  std::unique_ptr<tcp_clients::Listener> listener_;  ///< null without the reverse gateway
  const std::vector<Owned<tcp_upstream::DuplicateRequestCache>> caches_;
  std::vector<std::unique_ptr<Core>> cores_;
  std::unique_ptr<Exports> exports_;
  bool control_part_cut_ = false;  ///< truncation was detected and logged
};

}  // namespace sluice::process
