// SPDX-License-Identifier: Apache-2.0
//
// Heartbeat of the data plane in the segment. Used by the main thread.
#pragma once

#include <cstdint>
#include <vector>

#include "dataplane/segment/segment.h"

namespace sluice::process {

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

}  // namespace sluice::process
