// SPDX-License-Identifier: Apache-2.0
//
// Keeps connections of the verbs driver when the control plane ends. The kernel disconnects them when the last
// descriptor of their rdma_cm event channel is closed, so the control plane passes one to the data plane, which holds it
// (cm/channel_offer.h, process/kept_connections.h).
//
// A channel is known by the epoch of the control plane that has opened it: one channel for each, and no epoch comes
// again while a data plane runs. Layout::kept_epoch says what has arrived; until it does, the offer is repeated.
//
// Pure functions and plain values; any thread.
#pragma once

#include <cstdint>
#include <string>

#include "dataplane/segment/paths.h"

namespace sluice::segment {

inline constexpr std::uint32_t kKeptChannelMagic = 0x534c4b31;  // "SLK1"

/// The datagram that a descriptor of a channel comes with (segment/datagram_socket.h).
struct KeptChannel {
  std::uint32_t magic = kKeptChannelMagic;
  std::uint32_t epoch = 0;  ///< never zero
};

/// Stored in a connection's cm_state: the channel that it belongs to.
struct KeptConnection {
  std::uint32_t epoch = 0;  ///< never zero
};

/// The data plane's socket for a segment.
inline std::string kept_socket_of(const std::string& segment) {
  return base_path_of(segment) + ".kept";
}

}  // namespace sluice::segment
