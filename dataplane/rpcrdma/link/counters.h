// SPDX-License-Identifier: Apache-2.0
//
// Transport counters. Plain words of the owning reactor, which copies them to the shared segment between loop
// iterations.
#pragma once

#include <cstdint>

#include "dataplane/base/cache_line.h"
#include "dataplane/segment/counters.h"

namespace sluice::rpcrdma {

/// Counters of one client class. Those that nearly every call increments are in the first cache line.
struct alignas(kCacheLine) Counters {
#define SLUICE_COUNTER_FIELD(name, group, help) std::uint64_t name = 0;
  SLUICE_TRANSPORT_COUNTERS(SLUICE_COUNTER_FIELD)
#undef SLUICE_COUNTER_FIELD
};

}  // namespace sluice::rpcrdma
