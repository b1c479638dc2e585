// SPDX-License-Identifier: Apache-2.0
//
// Data plane of one process: builds all objects that a configuration requires, once, and does the main
// thread's work while the reactors run. Requires that DPDK's environment is initialized.
#pragma once

#include <cstdint>
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
}  // namespace sluice::tcp_upstream

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

/// Heartbeat of the data plane in the segment. Used by the main thread.
class ProcessHeartbeat {
 public:
  /// Starts the data plane's heartbeat for this process, which holds DataPlaneOwnership. The layout outlives
  /// it.
  ProcessHeartbeat(segment::Layout& layout, std::uint32_t reactors);
  /// Marks the data plane as ended.
  ~ProcessHeartbeat();
  ProcessHeartbeat(const ProcessHeartbeat&) = delete;
  ProcessHeartbeat& operator=(const ProcessHeartbeat&) = delete;

  /// Beats if every reactor has completed an iteration since the last call: a data plane with a stuck reactor
  /// does not count as alive, even if its main thread runs. Returns whether it has beaten.
  bool beat();

 private:
  segment::Layout& layout_;
  std::vector<std::uint64_t> turns_;  ///< iterations of each reactor at the last call
};

/// Data plane whose run() is active; otherwise null. Entry point for debuggers: deploy/gdb/sluice-gdb.py
/// reaches every reactor, connection, slot and queue pair from here, in a live process and in a core dump.
/// Written by the main thread. Volatile, so that the compiler does not drop stores that no code reads.
extern DataPlane* volatile debug_anchor;

}  // namespace sluice::process
