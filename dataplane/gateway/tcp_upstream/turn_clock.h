// SPDX-License-Identifier: Apache-2.0
//
// The time of a part of a reactor's turn, which is read once: what happens together has one time, and reading a
// clock costs a short call several percent. Only the owning reactor may call.
#pragma once

#include <cstdint>

namespace sluice::tcp_upstream {

class TurnClock {
 public:
  using Clock = std::uint64_t (*)() noexcept;

  explicit TurnClock(Clock clock) noexcept : clock_(clock) {}

  std::uint64_t now_ns() noexcept {
    if (!known_) now_ns_ = clock_();
    known_ = true;
    return now_ns_;
  }
  /// Time has passed: in the kernel, or with another part's work.
  void pass() noexcept { known_ = false; }

 private:
  const Clock clock_;
  std::uint64_t now_ns_ = 0;
  bool known_ = false;
};

}  // namespace sluice::tcp_upstream
