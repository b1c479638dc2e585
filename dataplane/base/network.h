// SPDX-License-Identifier: Apache-2.0
//
// Network that a peer's share of a pool is accounted to. Pure functions; any thread.
#pragma once

#include <cstddef>

#include "dataplane/base/net_address.h"

namespace sluice {

/// Returns an IPv4 address unchanged, and the first 64 bits of an IPv6 address, because a host can choose the
/// remaining bits freely.
inline PeerAddress network_of(PeerAddress address) {
  if (is_mapped_ipv4(address)) return address;
  for (std::size_t i = 8; i < address.bytes.size(); ++i) address.bytes[i] = 0;
  return address;
}

}  // namespace sluice
