// SPDX-License-Identifier: Apache-2.0
//
// Latency histogram with log-linear buckets: 32 of equal width per power of two, so that a percentile is off
// by at most 1/32 of its value. Single writer, any number of readers; counts are relaxed atomics. Zeroed
// memory is an empty histogram.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstdint>

#include "dataplane/base/invariant.h"

namespace sluice::segment {

class Histogram {
 public:
  static constexpr std::uint32_t kSubBits = 5;
  static constexpr std::uint32_t kSubBuckets = 1u << kSubBits;
  /// Bits of the largest value: 2^40 ns, about 18 minutes. Larger values count in the last bucket.
  static constexpr std::uint32_t kMaxBits = 40;
  static constexpr std::uint32_t kBuckets = (kMaxBits - kSubBits + 1) * kSubBuckets;

  static constexpr std::uint32_t bucket_of(std::uint64_t value) noexcept {
    if (value < kSubBuckets) return static_cast<std::uint32_t>(value);
    const auto bits = static_cast<std::uint32_t>(std::bit_width(value));
    if (bits > kMaxBits) return kBuckets - 1;
    const std::uint32_t shift = bits - kSubBits - 1;
    return (shift + 1) * kSubBuckets + static_cast<std::uint32_t>(value >> shift) - kSubBuckets;
  }
  /// Returns the largest value that counts in a bucket.
  static constexpr std::uint64_t upper_bound(std::uint32_t bucket) noexcept {
    if (bucket < kSubBuckets) return bucket;
    const std::uint32_t shift = bucket / kSubBuckets - 1;
    return ((std::uint64_t{bucket % kSubBuckets} + kSubBuckets + 1) << shift) - 1;
  }

  /// Adds a value `times` times. Called by the single writer only.
  void record(std::uint64_t value, std::uint64_t times = 1) noexcept {
    SLUICE_INVARIANT_DEBUG(bucket_of(value) < kBuckets, table_index);
    add(counts_[bucket_of(value)], times);
    add(sum_, value * times);
  }

  /// Resets the histogram. Called by the single writer only.
  void clear() noexcept {
    for (auto& count : counts_) count.store(0, std::memory_order_relaxed);
    sum_.store(0, std::memory_order_relaxed);
  }

  std::uint64_t count() const noexcept {
    std::uint64_t total = 0;
    for (const auto& count : counts_) total += count.load(std::memory_order_relaxed);
    return total;
  }
  std::uint64_t sum() const noexcept { return sum_.load(std::memory_order_relaxed); }
  std::uint64_t in_bucket(std::uint32_t bucket) const noexcept {
    static_cast<void>(SLUICE_INVARIANT(bucket < kBuckets, table_index));
    return counts_[bucket].load(std::memory_order_relaxed);
  }

  /// Returns the value at or below which the fraction `quantile` (0 to 1) of all values lies; zero if empty.
  std::uint64_t percentile(double quantile) const noexcept {
    static_cast<void>(SLUICE_INVARIANT(quantile >= 0 && quantile <= 1, table_index));
    const std::uint64_t total = count();
    if (total == 0) return 0;
    auto wanted = static_cast<std::uint64_t>(quantile * static_cast<double>(total));
    wanted = wanted >= total ? total : wanted + 1;
    std::uint64_t seen = 0;
    for (std::uint32_t bucket = 0; bucket < kBuckets; ++bucket) {
      seen += in_bucket(bucket);
      if (seen >= wanted) return upper_bound(bucket);
    }
    return upper_bound(kBuckets - 1);
  }

  void merge(const Histogram& other) noexcept {
    for (std::uint32_t i = 0; i < kBuckets; ++i) add(counts_[i], other.in_bucket(i));
    add(sum_, other.sum());
  }

 private:
  static void add(std::atomic<std::uint64_t>& to, std::uint64_t value) noexcept {
    to.store(to.load(std::memory_order_relaxed) + value, std::memory_order_relaxed);
  }

  std::array<std::atomic<std::uint64_t>, kBuckets> counts_{};
  std::atomic<std::uint64_t> sum_{0};
};

}  // namespace sluice::segment
