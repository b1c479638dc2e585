// SPDX-License-Identifier: Apache-2.0
//
// What the transport counts. Plain words of the owning reactor, which copies them to the shared segment
// between turns.
#pragma once

#include <cstdint>

#include "dataplane/base/cache_line.h"
#include "dataplane/segment/counters.h"

namespace sluice::rpcrdma {

/// The first line of them has what nearly every call counts.
struct alignas(kCacheLine) Counters {
#define SLUICE_COUNTER_FIELD(name, group, help) std::uint64_t name = 0;
  SLUICE_TRANSPORT_COUNTERS(SLUICE_COUNTER_FIELD)
#undef SLUICE_COUNTER_FIELD
};

}  // namespace sluice::rpcrdma
