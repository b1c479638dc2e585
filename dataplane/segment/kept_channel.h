// SPDX-License-Identifier: Apache-2.0
//
// Keeps connections of the verbs driver open when the control plane exits. The kernel disconnects them when
// the last descriptor of their rdma_cm event channel is closed, so the control plane publishes its channel in
// Layout::kept_channel and the data plane holds a duplicate (process/kept_connections.h).
//
// Pure functions and plain values; any thread. The descriptor number belongs to the publishing process.
#pragma once

#include <cstdint>

namespace sluice::segment {

/// Value of Layout::kept_channel. Zero: no channel.
constexpr std::uint64_t kept_channel(std::uint32_t token, int descriptor) noexcept {
  return std::uint64_t{token} << 32 | static_cast<std::uint32_t>(descriptor);
}
constexpr std::uint32_t token_of(std::uint64_t channel) noexcept {
  return static_cast<std::uint32_t>(channel >> 32);
}
constexpr int descriptor_of(std::uint64_t channel) noexcept {
  return static_cast<int>(static_cast<std::uint32_t>(channel));
}

/// Stored in a connection's cm_state: the channel that it belongs to.
struct KeptConnection {
  std::uint32_t token = 0;  ///< never zero
};

}  // namespace sluice::segment
