// SPDX-License-Identifier: Apache-2.0
//
// Access lists of exports. Pure functions; any thread.
#pragma once

#include <array>
#include <cstdint>

#include "dataplane/base/net_address.h"
#include "dataplane/segment/config_block.h"

namespace sluice::mount {

/// Returns true if `client` is in one of the first `count` prefixes, or if the list is empty.
inline bool allowed(const std::array<segment::AllowedPrefix, segment::kMaxAllowed>& prefixes,
                    std::uint32_t count, const PeerAddress& client) {
  for (std::uint32_t i = 0; i < count && i < segment::kMaxAllowed; ++i)
    if (client.within(prefixes[i].address, prefixes[i].prefix_bits)) return true;
  return count == 0;
}

}  // namespace sluice::mount
