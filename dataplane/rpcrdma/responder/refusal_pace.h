// SPDX-License-Identifier: Apache-2.0
//
// How many error messages the connections of an engine send in one turn. A call that is refused costs its sender
// nothing to make, and the others as much time as one that is served: who sends many waits for himself. The
// connections that wait are served in turn. One reactor.
#pragma once

#include <array>
#include <cstdint>

#include "dataplane/base/share_ledger.h"

namespace sluice::rpcrdma {

class RefusalPace {
 public:
  static constexpr std::uint32_t kPerTurn = 2;

  RefusalPace() noexcept { ledger_.provide({.elements = kPerTurn, .most = kPerTurn}); }

  /// What the last turn has used may be used again.
  void begin_turn() noexcept {
    while (used_ > 0) ledger_.give_back(*users_[--used_]);
  }
  /// False: the account has to await() its turn. The account outlives the turn.
  bool take(ShareAccount& account) noexcept {
    if ((ledger_.waiters() > 0 && !resuming_) || !ledger_.take(account)) return false;
    users_[used_++] = &account;
    return true;
  }
  void await(ShareAccount& account, ShareWaiter& waiter) noexcept { ledger_.await(account, waiter); }
  /// No effect if it does not wait.
  void forget(ShareAccount& account, ShareWaiter& waiter) noexcept { ledger_.forget(account, waiter); }
  void forget_all(ShareAccount& account) noexcept { ledger_.forget_all(account); }
  /// Calls those who wait, as far as this turn goes.
  void resume_waiters() noexcept {
    if (ledger_.waiters() == 0) return;
    resuming_ = true;
    ledger_.resume(kPerTurn);
    resuming_ = false;
  }

 private:
  ShareLedger ledger_;
  std::array<ShareAccount*, kPerTurn> users_{};
  std::uint32_t used_ = 0;
  bool resuming_ = false;  ///< resume_waiters() is on the stack
};

}  // namespace sluice::rpcrdma
