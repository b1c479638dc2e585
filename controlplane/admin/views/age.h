// SPDX-License-Identifier: Apache-2.0
//
// Age of wall-clock timestamps in the segment.
#pragma once

#include <cstdint>

#include "dataplane/segment/segment.h"

namespace sluice::admin {

/// Returns the seconds since `wall_ns`, a time of segment::wall_ns(). Returns zero if that time is in the
/// future because the clock was set back.
inline double seconds_since(std::uint64_t wall_ns) {
  const std::uint64_t now = segment::wall_ns();
  return now > wall_ns ? static_cast<double>(now - wall_ns) * 1e-9 : 0;
}

}  // namespace sluice::admin
