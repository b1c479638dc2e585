// SPDX-License-Identifier: Apache-2.0
//
// Counters of a reactor (segment/counters.h). Plain words of its thread; the publisher copies them to the
// segment.
#pragma once

#include <cstdint>

#include "dataplane/segment/counters.h"

namespace sluice::reactor {

struct Counters {
#define SLUICE_COUNTER_FIELD(name, group, help) std::uint64_t name = 0;
  SLUICE_REACTOR_COUNTERS(SLUICE_COUNTER_FIELD)
#undef SLUICE_COUNTER_FIELD
};

}  // namespace sluice::reactor
