// SPDX-License-Identifier: Apache-2.0
//
// Deadlines of many owners: a hierarchical timing wheel (Varghese and Lauck, SOSP 1987, scheme 7). The cost
// of a call depends neither on the number of deadlines nor on the time since the previous call.
//
// A Timer is linked into its owner's wheel and must be cancelled before it is destroyed. Only the owning
// reactor may call. Times in ns. No errors, no allocation.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

#include "dataplane/base/invariant.h"
#include "dataplane/base/small_algorithms.h"

namespace sluice::rdma::softroce {

template <typename Owner>
class TimerWheel {
 public:
  struct Timer {
    explicit Timer(Owner& of) noexcept : owner(&of) {}
    ~Timer() { static_cast<void>(SLUICE_INVARIANT(!linked, timer_state)); }
    Timer(const Timer&) = delete;
    Timer& operator=(const Timer&) = delete;

    Owner* owner;

   private:
    friend class TimerWheel;
    Timer* previous = nullptr;
    Timer* next = nullptr;
    std::uint64_t due = 0;  ///< tick
    std::uint8_t level = 0;
    std::uint8_t slot = 0;
    bool linked = false;
  };

  /// Schedules a timer, replacing its earlier deadline. The deadline is rounded up to ticks of 1024 ns. A
  /// deadline beyond kReach expires early.
  void schedule(Timer& timer, std::uint64_t at_ns) noexcept {
    cancel(timer);
    timer.due = bounded((at_ns >> kTickBits) + 1, tick_, tick_ + kReach);
    SLUICE_INVARIANT_DEBUG(timer.due >= tick_, timer_state);
    link(timer);
  }
  /// Schedules a timer, but keeps an earlier deadline. When that expires, the owner checks the time and
  /// schedules the timer again. This makes deadlines that are postponed repeatedly cheap.
  void schedule_no_later(Timer& timer, std::uint64_t at_ns) noexcept {
    if (!timer.linked || timer.due > (at_ns >> kTickBits) + 1) schedule(timer, at_ns);
  }
  void cancel(Timer& timer) noexcept {
    if (!timer.linked) return;
    Timer*& first = slots_[timer.level][timer.slot];
    SLUICE_INVARIANT_DEBUG((timer.previous == nullptr) == (first == &timer), timer_state);
    SLUICE_INVARIANT_DEBUG((used_[timer.level] >> timer.slot & 1) != 0, timer_state);
    if (timer.next != nullptr) timer.next->previous = timer.previous;
    if (timer.previous != nullptr)
      timer.previous->next = timer.next;
    else
      first = timer.next;
    if (first == nullptr) used_[timer.level] &= ~(std::uint64_t{1} << timer.slot);
    timer.linked = false;
  }

  /// Returns a timer that is due, removed from the wheel, or null if there is none or `steps` are used up. A
  /// step moves one timer or advances the wheel once.
  Timer* take_due(std::uint64_t now_ns, std::uint32_t& steps) noexcept {
    const std::uint64_t now = now_ns >> kTickBits;
    if (now < quiet_until_) {
      tick_ = larger_of(tick_, now);
      return nullptr;
    }
    while (steps > 0) {
      --steps;
      if (Timer* timer = slots_[0][index(tick_, 0)]; timer != nullptr) {
        SLUICE_INVARIANT_DEBUG(timer->linked && timer->due <= now, timer_state);
        cancel(*timer);
        return timer;
      }
      if (cascade()) continue;
      const std::uint64_t next = next_used();
      if (next > now) {
        tick_ = larger_of(tick_, now);
        quiet_until_ = next;
        return nullptr;
      }
      tick_ = next;
    }
    return nullptr;
  }

 private:
  static constexpr unsigned kTickBits = 10;
  static constexpr unsigned kSlotBits = 6;
  static constexpr unsigned kSlots = 1u << kSlotBits;
  static constexpr unsigned kLevels = 8;  // covers nine years
  /// Farthest deadline in ticks: 73 minutes. Later deadlines expire at that time.
  static constexpr std::uint64_t kReach = std::uint64_t{1} << 32;

  static unsigned index(std::uint64_t tick, unsigned level) noexcept {
    return static_cast<unsigned>(tick >> (level * kSlotBits)) & (kSlots - 1);
  }
  /// Links a timer on the level of the highest digit in which its tick differs from the current one, so that
  /// a slot of a higher level never contains a timer that is due within the slot's own time.
  void link(Timer& timer) noexcept {
    SLUICE_INVARIANT_DEBUG(!timer.linked, timer_state);
    const std::uint64_t differing = timer.due ^ tick_;
    const unsigned digit =
        differing == 0 ? 0 : (static_cast<unsigned>(std::bit_width(differing)) - 1) / kSlotBits;
    const unsigned level = smaller_of(digit, kLevels - 1);
    const unsigned slot = index(timer.due, level);
    Timer*& first = slots_[level][slot];
    timer.previous = nullptr;
    timer.next = first;
    if (first != nullptr) first->previous = &timer;
    first = &timer;
    timer.level = static_cast<std::uint8_t>(level);
    timer.slot = static_cast<std::uint8_t>(slot);
    timer.linked = true;
    used_[level] |= std::uint64_t{1} << slot;
    const unsigned shift = level * kSlotBits;
    quiet_until_ = smaller_of(quiet_until_, timer.due >> shift << shift);
  }
  /// Moves one timer in the current slot of a higher level to its place. Returns false if there is none.
  bool cascade() noexcept {
    for (unsigned level = kLevels - 1; level > 0; --level) {
      Timer* timer = slots_[level][index(tick_, level)];
      if (timer == nullptr) continue;
      cancel(*timer);
      timer->due = larger_of(timer->due, tick_);
      link(*timer);
      return true;
    }
    return false;
  }
  /// Returns the start of the next slot in use.
  std::uint64_t next_used() const noexcept {
    for (unsigned level = 0; level < kLevels; ++level) {
      const unsigned here = index(tick_, level);
      const std::uint64_t later = here + 1 == kSlots ? 0 : used_[level] >> (here + 1) << (here + 1);
      if (later == 0) continue;
      const unsigned shift = level * kSlotBits;
      const auto slot = static_cast<std::uint64_t>(std::countr_zero(later));
      return ((tick_ >> (shift + kSlotBits)) << kSlotBits | slot) << shift;
    }
    return ~std::uint64_t{0};
  }

  std::uint64_t tick_ = 0;         ///< all earlier timers were taken
  std::uint64_t quiet_until_ = 0;  ///< no timer needs handling before this tick
  std::array<std::uint64_t, kLevels> used_{};
  std::array<std::array<Timer*, kSlots>, kLevels> slots_{};
};

}  // namespace sluice::rdma::softroce
