// SPDX-License-Identifier: Apache-2.0
//
// The network that a peer's share of a pool belongs to. Pure; any thread.
#pragma once

#include <cstddef>

#include "dataplane/base/net_address.h"

namespace sluice {

/// An IPv4 address, or the first 64 bits of one of IPv6: a host may give itself any of the rest.
inline PeerAddress network_of(PeerAddress address) {
  if (is_mapped_ipv4(address)) return address;
  for (std::size_t i = 8; i < address.bytes.size(); ++i) address.bytes[i] = 0;
  return address;
}

}  // namespace sluice
