// SPDX-License-Identifier: Apache-2.0
//
// Bitmap of the packets that arrived out of order. Each PSN in a range as long as the map has its own bit,
// which the owner clears when it passes the PSN. A plain value owned by the queue pair; only the constructor
// allocates.
#pragma once

#include <bit>
#include <cstdint>
#include <vector>

#include "pmd/softroce/wire.h"

namespace sluice::rdma::softroce {

class PsnBitmap {
 public:
  /// Creates a bitmap for at least `packets` PSNs.
  explicit PsnBitmap(std::uint32_t packets)
      : words_(std::bit_ceil(packets < kBits ? kBits : packets) / kBits),
        mask_(static_cast<std::uint32_t>(words_.size()) * kBits - 1) {}

  std::uint32_t capacity() const noexcept { return mask_ + 1; }
  bool holds(std::uint32_t psn) const noexcept { return (words_[word(psn)] & bit(psn)) != 0; }
  void add(std::uint32_t psn) noexcept { words_[word(psn)] |= bit(psn); }
  /// Clears the bit and returns whether it was set.
  bool take(std::uint32_t psn) noexcept {
    const bool held = holds(psn);
    words_[word(psn)] &= ~bit(psn);
    return held;
  }

 private:
  static constexpr std::uint32_t kBits = 64;

  std::uint32_t word(std::uint32_t psn) const noexcept { return (psn & mask_) / kBits; }
  static std::uint64_t bit(std::uint32_t psn) noexcept { return std::uint64_t{1} << psn % kBits; }

  std::vector<std::uint64_t> words_;
  std::uint32_t mask_;
};

}  // namespace sluice::rdma::softroce
