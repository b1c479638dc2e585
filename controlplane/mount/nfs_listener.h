// SPDX-License-Identifier: Apache-2.0
//
// The NFS listener of the reverse gateway, which the MOUNT service registers with rpcbind. The data plane
// process serves it.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "controlplane/onc_rpc/rpcbind.h"
#include "dataplane/base/function.h"
#include "dataplane/base/net_address.h"

namespace sluice::mount {

inline constexpr std::uint32_t kNfsProgram = 100003;
/// Versions that Linux's server registers with rpcbind.
inline constexpr std::array<std::uint32_t, 2> kNfsVersions = {3, 4};

/// Listener of the reverse gateway: NFS over TCP, served by the data plane process.
struct NfsListener {
  PeerAddress address;  ///< all zero for every address of the host
  std::uint16_t port = 0;
  Function<bool()> serves;  ///< returns true if the listener is served now
};
/// Returns the registrations for NFS versions 3 and 4 at that listener. `six` is true if the host has IPv6.
std::vector<onc_rpc::Registration> registrations_of(const NfsListener& listener, bool six);

}  // namespace sluice::mount
