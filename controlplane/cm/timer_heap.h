// SPDX-License-Identifier: Apache-2.0
//
// Timers in a binary heap. A timer is embedded in its owner and stores its position, so that it is set and
// stopped in logarithmic time without a search. Single-threaded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace sluice::cm {

class TimerHeap;

/// A timer. It must outlive its time in the heap and must not move.
class Timer {
 public:
  explicit Timer(std::uint32_t id) : id_(id) {}
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;

  std::uint32_t id() const { return id_; }
  /// Returns zero if the timer is not set.
  std::uint64_t deadline_ns() const { return deadline_ns_; }

 private:
  friend TimerHeap;
  const std::uint32_t id_;
  std::uint64_t deadline_ns_ = 0;
  std::size_t place_ = 0;
};

class TimerHeap {
 public:
  /// Returns the number of timers that are set.
  std::size_t size() const { return heap_.size(); }
  /// Returns the timer with the earliest deadline, or null if none is set.
  Timer* first() const { return heap_.empty() ? nullptr : heap_.front(); }
  /// Sets the timer; zero stops it.
  void set(Timer& timer, std::uint64_t deadline_ns);

 private:
  void put(std::size_t place, Timer* timer);
  void move_up(std::size_t place);
  void move_down(std::size_t place);

  std::vector<Timer*> heap_;
};

}  // namespace sluice::cm
