// SPDX-License-Identifier: Apache-2.0
//
// Tracks which Sends of a requester are complete. A queue pair completes Sends in posting order, and a
// completion covers all preceding unsignaled Sends. Each Send therefore has a number, and most completions
// touch no slot. Confined to one reactor, or to the thread of a client.
#pragma once

#include <cstdint>
#include <vector>

namespace sluice::rpcrdma {

class SendOrder {
 public:
  /// Called at setup. `slots`, a power of two, have at most one outstanding Send each.
  explicit SendOrder(std::uint32_t slots) : slots_(slots) {}

  /// Adds the next Send, which belongs to `slot`. Returns its number.
  std::uint64_t add(std::uint16_t slot) noexcept {
    slots_[++added_ & (slots_.size() - 1)] = slot;
    return added_;
  }
  bool is_done(std::uint64_t number) const noexcept { return number <= done_; }
  bool all_done() const noexcept { return done_ == added_; }
  /// Called when a slot waits only for the completion of its Send.
  void await() noexcept { ++awaiting_; }

  /// Completes the Send with this number and all Sends before it. If any slot waits, `ended` is called with
  /// the slots of the newly completed Sends and returns true if its slot was waiting.
  template <typename Ended>
  void complete(std::uint64_t number, const Ended& ended) noexcept {
    while (awaiting_ > 0 && done_ < number) {
      ++done_;
      if (ended(slots_[done_ & (slots_.size() - 1)])) --awaiting_;
    }
    if (done_ < number) done_ = number;
  }

 private:
  std::uint64_t added_ = 0;
  std::uint64_t done_ = 0;
  std::uint32_t awaiting_ = 0;
  std::vector<std::uint16_t> slots_;  ///< indexed by number
};

}  // namespace sluice::rpcrdma
