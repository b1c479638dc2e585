// SPDX-License-Identifier: Apache-2.0
//
// Which Sends of a requester are complete. A queue pair completes them in the order in which they were posted, and a
// completion stands for all before it that had asked for none: so a Send is a number, and most completions touch no slot.
// One reactor, or the one thread of a client.
#pragma once

#include <cstdint>
#include <vector>

namespace sluice::rpcrdma {

class SendOrder {
 public:
  /// Setup: `slots`, a power of two, with one Send each that is out at most.
  explicit SendOrder(std::uint32_t slots) : slots_(slots) {}

  /// The next Send is that of this slot. Returns its number.
  std::uint64_t add(std::uint16_t slot) noexcept {
    slots_[++added_ & (slots_.size() - 1)] = slot;
    return added_;
  }
  bool is_done(std::uint64_t number) const noexcept { return number <= done_; }
  bool all_done() const noexcept { return done_ == added_; }
  /// A slot with a Send that is not done needs nothing but its completion.
  void await() noexcept { ++awaiting_; }

  /// The Send with this number is complete, and with it all before it: `ended` is called with the slots of those that are
  /// newly done if anybody awaits one of them, and returns whether its slot did.
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
  std::vector<std::uint16_t> slots_;  ///< by number
};

}  // namespace sluice::rpcrdma
