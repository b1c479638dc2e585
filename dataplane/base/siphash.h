// SPDX-License-Identifier: Apache-2.0
//
// SipHash-2-4 (Aumasson, Bernstein: "SipHash: a fast short-input PRF", 2012). Keyed, so that peers can
// neither forge file handles, nor choose names that collide, nor guess steering tags. Pure functions; any
// thread.
#pragma once

#include <sys/random.h>

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>

#include "dataplane/base/setup_error.h"

namespace sluice {

using HashKey = std::array<std::byte, 16>;

inline std::uint64_t siphash(const HashKey& key, std::span<const std::byte> data) noexcept {
  std::uint64_t k0;
  std::uint64_t k1;
  std::memcpy(&k0, key.data(), 8);
  std::memcpy(&k1, key.data() + 8, 8);
  std::uint64_t v0 = k0 ^ 0x736f6d6570736575;
  std::uint64_t v1 = k1 ^ 0x646f72616e646f6d;
  std::uint64_t v2 = k0 ^ 0x6c7967656e657261;
  std::uint64_t v3 = k1 ^ 0x7465646279746573;
  const auto round = [&] {
    v0 += v1;
    v1 = std::rotl(v1, 13) ^ v0;
    v0 = std::rotl(v0, 32);
    v2 += v3;
    v3 = std::rotl(v3, 16) ^ v2;
    v0 += v3;
    v3 = std::rotl(v3, 21) ^ v0;
    v2 += v1;
    v1 = std::rotl(v1, 17) ^ v2;
    v2 = std::rotl(v2, 32);
  };
  const auto compress = [&](std::uint64_t word) {
    v3 ^= word;
    round();
    round();
    v0 ^= word;
  };
  std::size_t at = 0;
  for (; at + 8 <= data.size(); at += 8) {
    std::uint64_t word;
    std::memcpy(&word, data.data() + at, 8);
    compress(word);
  }
  std::uint64_t last = std::uint64_t{data.size()} << 56;
  for (std::size_t i = 0; at + i < data.size(); ++i)
    last |= static_cast<std::uint64_t>(data[at + i]) << (8 * i);
  compress(last);
  v2 ^= 0xff;
  for (int i = 0; i < 4; ++i) round();
  return v0 ^ v1 ^ v2 ^ v3;
}

/// Returns an unpredictable value from the kernel, such as a key. For setup; any thread. Throws SetupError.
template <typename T>
T random_value() {
  static_assert(std::has_unique_object_representations_v<T> && sizeof(T) <= 256);  // more may be truncated
  T value;
  if (::getrandom(&value, sizeof value, 0) != static_cast<ssize_t>(sizeof value))
    throw SetupError("Cannot get random numbers from the kernel.");
  return value;
}

}  // namespace sluice
