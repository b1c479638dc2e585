// SPDX-License-Identifier: Apache-2.0
//
// What is on its way along a wire of some length: it comes out at the other end a fixed time after it went in, in the
// order in which it went in. As many items as there is room for. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "dataplane/base/fixed_ring.h"

namespace sluice::rdma::conformance {

template <typename Item>
class DelayLine {
 public:
  DelayLine() = default;
  DelayLine(std::size_t items, std::uint64_t one_way_ns) : underway_(items), one_way_ns_(one_way_ns) {}

  /// False: there is no room.
  bool push(Item item, std::uint64_t now_ns) noexcept {
    return underway_.push_back({item, now_ns + one_way_ns_});
  }
  /// The oldest item, if it has arrived by now.
  std::optional<Item> take(std::uint64_t now_ns) noexcept {
    if (underway_.empty() || underway_.front().due_ns > now_ns) return std::nullopt;
    return underway_.pop_front().item;
  }
  /// The oldest item, wherever it is.
  std::optional<Item> take() noexcept {
    if (underway_.empty()) return std::nullopt;
    return underway_.pop_front().item;
  }
  /// When the oldest item arrives.
  std::optional<std::uint64_t> next_ns() noexcept {
    if (underway_.empty()) return std::nullopt;
    return underway_.front().due_ns;
  }

 private:
  struct Underway {
    Item item{};
    std::uint64_t due_ns = 0;
  };
  FixedRing<Underway> underway_;
  std::uint64_t one_way_ns_ = 0;
};

}  // namespace sluice::rdma::conformance
