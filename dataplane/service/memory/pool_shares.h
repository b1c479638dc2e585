// SPDX-License-Identifier: Apache-2.0
//
// Shares of exports in a pool of elements that all of them use, such as inodes. A part of the pool is divided
// equally among the open exports. An open export can always take elements up to its share. The rest of the
// pool goes to the exports that take it first.
//
// The class only counts; the caller owns the elements. Single-threaded. All operations are O(1), except
// open() and close().
#pragma once

#include <array>
#include <cstdint>

#include "dataplane/base/small_algorithms.h"

namespace sluice::service::memory {

inline constexpr std::uint32_t kMaxExports = 32;  ///< per file system
/// Divisor of the pool size that yields the sum of the shares of all exports.
inline constexpr std::uint32_t kSharedPart = 2;

class PoolShares {
 public:
  explicit PoolShares(std::uint32_t elements) noexcept : elements_(elements), free_(elements) {}

  /// Gives the export a share, in at most kMaxExports steps. If other exports have taken elements of the
  /// share, it becomes available as they give elements back.
  void open(std::uint32_t id) noexcept {
    uses_[id].open = true;
    divide();
  }
  /// Ends the export's share, in at most kMaxExports steps. The export keeps the elements that it has taken.
  void close(std::uint32_t id) noexcept {
    uses_[id].open = false;
    divide();
  }

  std::uint32_t free() const noexcept { return free_; }
  std::uint32_t taken(std::uint32_t id) const noexcept { return uses_[id].taken; }
  /// Returns how many elements the export may take. Free elements that the shares of other exports still lack
  /// are excluded.
  std::uint32_t available(std::uint32_t id) const noexcept {
    const std::uint32_t reserved = lacking_ - lacks(uses_[id]);
    return free_ - smaller_of(free_, reserved);
  }

  /// Takes a free element. The caller has checked available(), unless the export has just given one back.
  void take(std::uint32_t id) noexcept {
    if (lacks(uses_[id]) > 0) --lacking_;
    ++uses_[id].taken;
    --free_;
  }
  void give_back(std::uint32_t id) noexcept {
    --uses_[id].taken;
    ++free_;
    if (lacks(uses_[id]) > 0) ++lacking_;
  }

 private:
  struct Use {
    std::uint32_t taken = 0;
    bool open = false;
  };
  std::uint32_t lacks(const Use& use) const noexcept {
    return use.open ? share_ - smaller_of(share_, use.taken) : 0;
  }
  void divide() noexcept {
    std::uint32_t open = 0;
    for (const Use& use : uses_) open += use.open ? 1 : 0;
    share_ = open > 0 ? elements_ / kSharedPart / open : 0;
    lacking_ = 0;
    for (const Use& use : uses_) lacking_ += lacks(use);
  }

  std::uint32_t elements_;
  std::uint32_t free_;
  std::uint32_t share_ = 0;    ///< share of each open export
  std::uint32_t lacking_ = 0;  ///< sum of lacks()
  std::array<Use, kMaxExports> uses_{};
};

}  // namespace sluice::service::memory
