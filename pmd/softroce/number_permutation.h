// SPDX-License-Identifier: Apache-2.0
//
// A keyed permutation of small numbers. It enumerates all of them in an order that cannot be predicted
// without the key, however many of them were observed. A Feistel network with a pseudo-random function in
// each round (Luby and Rackoff, 1988). A plain value; one thread. No errors, no allocation.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "dataplane/base/siphash.h"

namespace sluice::rdma::softroce {

class NumberPermutation {
 public:
  static constexpr unsigned kBits = 21;
  static constexpr std::uint32_t kMask = (1u << kBits) - 1;

  explicit NumberPermutation(const HashKey& key) noexcept : key_(key) {}

  /// Returns a different number on each call until all numbers were returned.
  std::uint32_t next() noexcept { return at(count_++); }
  std::uint32_t at(std::uint32_t place) const noexcept {
    std::uint32_t high = (place & kMask) >> kLowBits;
    std::uint32_t low = place & kLowMask;
    for (std::uint8_t round = 0; round < kRounds; round += 2) {
      high ^= mix(round, low) & kHighMask;
      low ^= mix(static_cast<std::uint8_t>(round + 1), high) & kLowMask;
    }
    return high << kLowBits | low;
  }

 private:
  static constexpr std::uint8_t kRounds = 8;
  static constexpr unsigned kLowBits = kBits / 2;
  static constexpr std::uint32_t kLowMask = (1u << kLowBits) - 1;
  static constexpr std::uint32_t kHighMask = (1u << (kBits - kLowBits)) - 1;

  std::uint32_t mix(std::uint8_t round, std::uint32_t half) const noexcept {
    const std::array<std::byte, 3> input{std::byte{round}, std::byte(half), std::byte(half >> 8)};
    return static_cast<std::uint32_t>(siphash(key_, input));
  }

  HashKey key_;
  std::uint32_t count_ = 0;
};

}  // namespace sluice::rdma::softroce
