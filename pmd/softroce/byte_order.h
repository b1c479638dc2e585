// SPDX-License-Identifier: Apache-2.0
//
// Big-endian loads and stores at any alignment. Pure; any thread. No bounds check: the caller guarantees that
// 2, 4 or 8 bytes are accessible.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace sluice::rdma::softroce {

static_assert(std::endian::native == std::endian::little, "the wire is big-endian, the core is not");

inline std::uint16_t load_be16(const std::byte* from) noexcept {
  std::uint16_t raw;
  std::memcpy(&raw, from, sizeof raw);
  return __builtin_bswap16(raw);
}
inline std::uint32_t load_be32(const std::byte* from) noexcept {
  std::uint32_t raw;
  std::memcpy(&raw, from, sizeof raw);
  return __builtin_bswap32(raw);
}
inline std::uint64_t load_be64(const std::byte* from) noexcept {
  std::uint64_t raw;
  std::memcpy(&raw, from, sizeof raw);
  return __builtin_bswap64(raw);
}
inline void store_be16(std::byte* to, std::uint16_t value) noexcept {
  value = __builtin_bswap16(value);
  std::memcpy(to, &value, sizeof value);
}
inline void store_be32(std::byte* to, std::uint32_t value) noexcept {
  value = __builtin_bswap32(value);
  std::memcpy(to, &value, sizeof value);
}
inline void store_be64(std::byte* to, std::uint64_t value) noexcept {
  value = __builtin_bswap64(value);
  std::memcpy(to, &value, sizeof value);
}

}  // namespace sluice::rdma::softroce
