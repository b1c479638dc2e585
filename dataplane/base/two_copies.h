// SPDX-License-Identifier: Apache-2.0
//
// Value of one writer that is complete at any moment, even if the writer dies during a write: two sequence
// locks that are written alternately, and a count that selects the newest. Zeroed memory holds a zeroed
// value.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "dataplane/base/owned.h"
#include "dataplane/base/seqlock.h"
#include "dataplane/base/store_point.h"

namespace sluice {

template <typename T>
class TwoCopies {
 public:
  /// Publishes a value. Called by the single writer only. Readers see the old value until it returns.
  void write(const T& value) noexcept {
    const std::uint32_t next = written_.load(std::memory_order_relaxed) + 1;
    copies_[next % 2].write(value);
    SLUICE_STORE_POINT();
    written_.store(next, std::memory_order_release);
  }

  /// Reads the value; any thread or process. Returns false if the writer overtook every attempt; `value` is
  /// then undefined.
  [[nodiscard]] bool read(T& value) const noexcept {
    constexpr int kTries = 8;
    for (int i = 0; i < kTries; ++i)
      if (copies_[written_.load(std::memory_order_acquire) % 2].read(value)) return true;
    return false;
  }
  /// Returns an allocated copy of the value; empty if read() fails. Not on the message path, because it
  /// allocates.
  Owned<T> read_copy() const {
    Owned<T> value(new T());
    if (!read(*value)) value.reset();
    return value;
  }

  /// Returns the sequence number, which changes with every write.
  std::uint32_t sequence() const noexcept { return written_.load(std::memory_order_acquire); }

 private:
  std::atomic<std::uint32_t> written_;
  std::array<SeqLock<T>, 2> copies_;
};

}  // namespace sluice
