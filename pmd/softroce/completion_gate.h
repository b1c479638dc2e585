// SPDX-License-Identifier: Apache-2.0
//
// Limits how many queued work completions poll() may return. A completion that returns memory is held until a
// network card has read that memory, and later completions are held with it, so that the order is kept. This
// is necessary because a peer may acknowledge or invalidate data that was not even sent. A value; its owner's
// thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "dataplane/base/invariant.h"
#include "dataplane/base/small_algorithms.h"

namespace sluice::rdma::softroce {

class CompletionGate {
 public:
  /// Holds completions queued from now on until everything before `mark` is done. Marks increase.
  void need(std::uint64_t mark) noexcept { needed_ = larger_of(needed_, mark); }
  bool closed() const noexcept { return needed_ != 0; }
  void open() noexcept { *this = {}; }

  /// Returns how many of `waiting` queued completions may be taken, from the first one on. `done(mark)`
  /// reports whether everything before a mark is done. Marks added during the wait do not delay completions
  /// that are already held, so no completion waits for more than one mark.
  template <typename Done>
  std::size_t free(std::size_t waiting, const Done& done) noexcept {
    if (held_ > 0 && done(mark_)) free_ += std::exchange(held_, 0);
    SLUICE_INVARIANT_DEBUG(free_ + held_ <= waiting, ring_index);
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
  /// Records that `count` completions were taken.
  void take(std::size_t count) noexcept { free_ -= smaller_of(free_, count); }
  /// Starts counting again after some queued completions were removed from any position.
  void recount() noexcept { free_ = held_ = 0; }

 private:
  std::uint64_t needed_ = 0;  ///< the greatest mark; zero if none
  std::uint64_t mark_ = 0;    ///< mark that the held completions wait for
  std::size_t free_ = 0;      ///< number of completions that may be taken, from the first one on
  std::size_t held_ = 0;      ///< number of held completions after those
};

}  // namespace sluice::rdma::softroce
