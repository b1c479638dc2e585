// SPDX-License-Identifier: Apache-2.0
//
// Preserves connections of the verbs driver when the control plane ends. The kernel disconnects them when the
// last descriptor of their rdma_cm event channel is closed, so the control plane passes a duplicate to the
// data plane, which holds it (cm/connections.h, process/kept_connections.h).
//
// A channel is identified by the epoch of the control plane that opened it: each has one channel, and no
// epoch is reused while a data plane runs. Layout::kept_epoch shows which channel has arrived; the offer is
// repeated until then.
//
// Pure functions and plain values; any thread.
#pragma once

#include <cstdint>
#include <string>

#include "dataplane/segment/paths.h"

namespace sluice::segment {

inline constexpr std::uint32_t kKeptChannelMagic = 0x534c4b31;  // "SLK1"

/// Datagram that carries the descriptor of a channel (segment/datagram_socket.h).
struct KeptChannel {
  std::uint32_t magic = kKeptChannelMagic;
  std::uint32_t epoch = 0;  ///< never zero
};

/// Channel that a connection belongs to; stored in the connection's cm_state.
struct KeptConnection {
  std::uint32_t epoch = 0;  ///< never zero
};

/// Returns the path of the data plane's socket for a segment.
inline std::string kept_socket_of(const std::string& segment) {
  return base_path_of(segment) + ".kept";
}

}  // namespace sluice::segment
