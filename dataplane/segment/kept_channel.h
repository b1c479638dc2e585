// SPDX-License-Identifier: Apache-2.0
//
// How the kernel's connections of the verbs driver outlive the control plane: its connection-management
// channel is published here, and the data plane keeps a second descriptor of it. The kernel ends connections
// with the last one.
#pragma once

#include <cstdint>

namespace sluice::segment {

/// What goes into Layout::kept_channel. Zero: none.
constexpr std::uint64_t kept_channel(std::uint32_t token, int descriptor) noexcept {
  return std::uint64_t{token} << 32 | static_cast<std::uint32_t>(descriptor);
}
constexpr std::uint32_t token_of(std::uint64_t channel) noexcept {
  return static_cast<std::uint32_t>(channel >> 32);
}
constexpr int descriptor_of(std::uint64_t channel) noexcept {
  return static_cast<int>(static_cast<std::uint32_t>(channel));
}

/// In a connection's cm_state: which channel it is on.
struct KeptConnection {
  std::uint32_t token = 0;  ///< never zero
};

}  // namespace sluice::segment
