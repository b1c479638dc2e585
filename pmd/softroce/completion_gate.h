// SPDX-License-Identifier: Apache-2.0
//
// How many of the work completions that wait to be polled may be: one that returns memory has to wait until a network card has
// read it, and those behind it wait with it, so that they stay in order. A peer may acknowledge, or invalidate, what has not
// even been sent. A value; its owner's thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "dataplane/base/small_algorithms.h"

namespace sluice::rdma::softroce {

class CompletionGate {
 public:
  /// What comes from now on waits until everything before `mark` is done. Marks grow.
  void need(std::uint64_t mark) noexcept { needed_ = larger_of(needed_, mark); }
  bool closed() const noexcept { return needed_ != 0; }
  void open() noexcept { *this = {}; }

  /// Of `waiting` completions in all so many may be taken, from the first on. `done(mark)` says whether what a mark stands for is
  /// done. Marks that come meanwhile do not hold up those that wait already: what waits longest waits for one mark.
  template <typename Done>
  std::size_t free(std::size_t waiting, const Done& done) noexcept {
    if (held_ > 0 && done(mark_)) free_ += std::exchange(held_, 0);
    if (held_ == 0 && done(needed_)) {
      open();
      return waiting;
    }
    if (held_ == 0) {
      mark_ = needed_;
      held_ = waiting - free_;
    }
    return free_;
  }
  /// So many of them were taken.
  void take(std::size_t count) noexcept { free_ -= smaller_of(free_, count); }
  /// Some of those that wait are gone, from anywhere among them.
  void recount() noexcept { free_ = held_ = 0; }

 private:
  std::uint64_t needed_ = 0;  ///< the greatest mark; zero: none
  std::uint64_t mark_ = 0;    ///< what those wait for that are held
  std::size_t free_ = 0;      ///< from the first on
  std::size_t held_ = 0;      ///< behind them
};

}  // namespace sluice::rdma::softroce
