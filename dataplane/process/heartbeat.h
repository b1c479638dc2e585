// SPDX-License-Identifier: Apache-2.0
//
// The data plane's proof of life in the segment. The main thread.
#pragma once

#include <cstdint>
#include <vector>

#include "dataplane/segment/segment.h"

namespace sluice::process {

class ProcessHeartbeat {
 public:
  /// Takes over the data plane's heartbeat for this process, which has DataPlaneOwnership. The layout outlives
  /// it.
  ProcessHeartbeat(segment::Layout& layout, std::uint32_t reactors);
  /// Onlookers see that the data plane has ended.
  ~ProcessHeartbeat();
  ProcessHeartbeat(const ProcessHeartbeat&) = delete;
  ProcessHeartbeat& operator=(const ProcessHeartbeat&) = delete;

  /// Beats if every reactor has made a turn since the last call: a data plane with a stuck reactor is not
  /// alive, whatever its main thread does. Whether it has beaten.
  bool beat();

 private:
  segment::Layout& layout_;
  std::vector<std::uint64_t> turns_;  ///< of each reactor, at the last call
};

}  // namespace sluice::process
