// SPDX-License-Identifier: Apache-2.0
//
// Timers in a binary heap. A timer is part of what it is for and knows its place, so that it is set and
// stopped in logarithmic time without a search. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace sluice::cm {

class TimerHeap;

/// Outlives its time in the heap, where it stays at one address.
class Timer {
 public:
  explicit Timer(std::uint32_t id) : id_(id) {}
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;

  std::uint32_t id() const { return id_; }
  /// Zero: it is not set.
  std::uint64_t deadline_ns() const { return deadline_ns_; }

 private:
  friend TimerHeap;
  const std::uint32_t id_;
  std::uint64_t deadline_ns_ = 0;
  std::size_t place_ = 0;
};

class TimerHeap {
 public:
  /// Timers that are set.
  std::size_t size() const { return heap_.size(); }
  /// The one with the earliest deadline; null when none is set.
  Timer* first() const { return heap_.empty() ? nullptr : heap_.front(); }
  /// Zero stops it.
  void set(Timer& timer, std::uint64_t deadline_ns);

 private:
  void put(std::size_t place, Timer* timer);
  void move_up(std::size_t place);
  void move_down(std::size_t place);

  std::vector<Timer*> heap_;
};

}  // namespace sluice::cm
