// SPDX-License-Identifier: Apache-2.0
//
// Whom an export is for. Pure; any thread.
#pragma once

#include <array>
#include <cstdint>

#include "dataplane/base/net_address.h"
#include "dataplane/segment/config_block.h"

namespace sluice::mount {

/// Whether `client` is in one of the first `count` prefixes; an empty list has every client.
inline bool allowed(const std::array<segment::AllowedPrefix, segment::kMaxAllowed>& prefixes,
                    std::uint32_t count, const PeerAddress& client) {
  for (std::uint32_t i = 0; i < count && i < segment::kMaxAllowed; ++i)
    if (client.within(prefixes[i].address, prefixes[i].prefix_bits)) return true;
  return count == 0;
}

}  // namespace sluice::mount
