// SPDX-License-Identifier: Apache-2.0
//
// Queue of items in flight on a wire of some length. Each item arrives a fixed time after it was pushed, in
// order. The capacity is fixed. Single-threaded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "dataplane/base/fixed_containers.h"

namespace sluice::rdma::conformance {

template <typename Item>
class DelayLine {
 public:
  DelayLine() = default;
  DelayLine(std::size_t items, std::uint64_t one_way_ns) : underway_(items), one_way_ns_(one_way_ns) {}

  /// Returns false if the queue is full.
  bool push(Item item, std::uint64_t now_ns) noexcept {
    return underway_.push_back({item, now_ns + one_way_ns_});
  }
  /// Removes and returns the oldest item if it has arrived by now.
  std::optional<Item> take(std::uint64_t now_ns) noexcept {
    if (underway_.empty() || underway_.front().due_ns > now_ns) return std::nullopt;
    return underway_.pop_front().item;
  }
  /// Removes and returns the oldest item, whether or not it has arrived.
  std::optional<Item> take() noexcept {
    if (underway_.empty()) return std::nullopt;
    return underway_.pop_front().item;
  }
  /// Arrival time of the oldest item.
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
