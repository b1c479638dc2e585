// SPDX-License-Identifier: Apache-2.0
//
// Clients without a gateway: one TCP connection to the upstream, polled without blocking.
#pragma once

#include <cstdint>

#include "tests/bench/forward_calls.h"
#include "tests/bench/rate.h"

namespace sluice::bench {

/// Returns a connection to an upstream on this host.
int connect_to(std::uint16_t port);

/// Measures with `depth` outstanding calls of constant length. Calls that are ready together are sent in one
/// send().
Rate straight(std::uint16_t port, const ForwardedShape& shape, std::uint32_t depth, double seconds);

}  // namespace sluice::bench
