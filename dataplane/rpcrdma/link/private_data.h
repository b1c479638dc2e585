// SPDX-License-Identifier: Apache-2.0
//
// RPC-over-RDMA private data of connection management (RFC 8797): inline thresholds and remote invalidation.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>

#include "dataplane/base/small_algorithms.h"
#include "dataplane/rpcrdma/link/config.h"
#include "dataplane/xdr/cursor.h"

namespace sluice::rpcrdma {

inline constexpr std::uint32_t kPrivateDataId = 0xf6ab0e18;
inline constexpr std::uint8_t kPrivateDataVersion = 1;
inline constexpr std::size_t kPrivateDataBytes = 8;
inline constexpr std::uint32_t kInlineUnitBytes = 1024;

struct PrivateData {
  bool remote_invalidation = false;
  std::uint32_t send_bytes = kDefaultInlineBytes;     ///< largest Send that the sender of this data makes
  std::uint32_t receive_bytes = kDefaultInlineBytes;  ///< size of the Receives of the sender of this data
};

/// Encodes the private data. Sizes are rounded down to whole units and clamped to the range of one byte.
inline std::array<std::byte, kPrivateDataBytes> encode_private_data(const PrivateData& data) noexcept {
  const auto size_code = [](std::uint32_t bytes) {
    return static_cast<std::byte>(bounded<std::uint32_t>(bytes / kInlineUnitBytes, 1, 256) - 1);
  };
  std::array<std::byte, kPrivateDataBytes> out;
  xdr::store_u32(out.data(), kPrivateDataId);
  out[4] = static_cast<std::byte>(kPrivateDataVersion);
  out[5] = static_cast<std::byte>(data.remote_invalidation ? 1 : 0);
  out[6] = size_code(data.send_bytes);
  out[7] = size_code(data.receive_bytes);
  return out;
}

/// Decodes private data. Returns nothing if the peer sent none that is understood; the defaults then apply
/// (RFC 8797, section 4).
inline std::optional<PrivateData> decode_private_data(std::span<const std::byte> bytes) noexcept {
  if (bytes.size() < kPrivateDataBytes || xdr::load_u32(bytes.data()) != kPrivateDataId ||
      bytes[4] != static_cast<std::byte>(kPrivateDataVersion))
    return std::nullopt;
  const auto size_of = [](std::byte code) {
    return (static_cast<std::uint32_t>(code) + 1) * kInlineUnitBytes;
  };
  return PrivateData{(bytes[5] & std::byte{1}) != std::byte{0}, size_of(bytes[6]), size_of(bytes[7])};
}

/// Returns the inline threshold for sending: the size of the peer's Receives if announced, but never more
/// than `own_limit_bytes`.
inline std::uint32_t send_inline_bytes(const std::optional<PrivateData>& peer,
                                       std::uint32_t own_limit_bytes) noexcept {
  return smaller_of(peer ? peer->receive_bytes : kDefaultInlineBytes,
                    larger_of(own_limit_bytes, kDefaultInlineBytes));
}

}  // namespace sluice::rpcrdma
