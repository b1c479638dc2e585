// SPDX-License-Identifier: Apache-2.0
//
// Whom a share belongs to. Pure; any thread.
#pragma once

#include <algorithm>

#include "dataplane/base/net_address.h"

namespace sluice::mount {

/// An IPv4 address, or the first 64 bits of one of IPv6: a host may give itself any of the rest.
inline PeerAddress network_of(PeerAddress address) {
  if (!is_mapped_ipv4(address)) std::fill(address.bytes.begin() + 8, address.bytes.end(), std::uint8_t{0});
  return address;
}

}  // namespace sluice::mount
