// SPDX-License-Identifier: Apache-2.0
//
// The invariant CRC of a RoCEv2 packet (annex A17.3.3), the CRC of Ethernet. Pure functions, any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace sluice::rdma::softroce {

inline constexpr std::size_t kIcrcBytes = 4;

/// Returns the CRC of a pseudo header, the IP and UDP headers at `network` (`network_bytes` of them), and
/// `transport_bytes` after them, starting with the base transport header, which must be complete: the masked
/// fields are read without a further check. Fields that routers change count as ones.
std::uint32_t icrc_start(const std::byte* network, std::size_t network_bytes,
                         std::size_t transport_bytes) noexcept;
/// The two implementations of icrc_start(), for its test: by carry-less multiplication, which requires
/// icrc_folds(), and with `wide` also icrc_is_wide(); and by a library on a copy of the headers.
std::uint32_t icrc_start_folded(const std::byte* network, std::size_t network_bytes,
                                std::size_t transport_bytes, bool wide) noexcept;
std::uint32_t icrc_start_copied(const std::byte* network, std::size_t network_bytes,
                                std::size_t transport_bytes) noexcept;
/// Reports whether this processor has carry-less multiplication.
bool icrc_folds() noexcept;
/// Reports whether this processor has carry-less multiplication of two blocks in one instruction.
bool icrc_is_wide() noexcept;
/// Continues the CRC over the bytes that follow.
std::uint32_t icrc_continue(std::uint32_t crc, std::span<const std::byte> bytes) noexcept;
/// Continues the CRC over `from` and copies these bytes to `to`, in one pass over long ones.
std::uint32_t icrc_copy(std::uint32_t crc, std::span<const std::byte> from, std::byte* to) noexcept;
/// Returns the CRC in wire order.
inline std::array<std::byte, kIcrcBytes> icrc_bytes(std::uint32_t crc) noexcept {
  return {std::byte(crc), std::byte(crc >> 8), std::byte(crc >> 16), std::byte(crc >> 24)};
}

}  // namespace sluice::rdma::softroce
