// SPDX-License-Identifier: Apache-2.0
//
// Limits the error messages that the connections of an engine send per loop iteration. A call that is refused
// costs its sender almost nothing but costs this end as much time as one that is served, so a sender of many
// such calls only delays itself. Waiting connections are served round robin. Confined to one reactor.
#pragma once

#include <array>
#include <cstdint>

#include "dataplane/base/share_ledger.h"

namespace sluice::rpcrdma {

class RefusalPace {
 public:
  static constexpr std::uint32_t kPerTurn = 2;

  RefusalPace() noexcept { ledger_.provide({.elements = kPerTurn, .most = kPerTurn}); }

  /// Releases the shares of the last iteration.
  void begin_turn() noexcept {
    while (used_ > 0) ledger_.give_back(*users_[--used_]);
  }
  /// Takes a share of this iteration. Returns false if none is left; the account must then call await(). The
  /// account must outlive the iteration.
  bool take(ShareAccount& account) noexcept {
    if ((ledger_.waiters() > 0 && !resuming_) || !ledger_.take(account)) return false;
    users_[used_++] = &account;
    return true;
  }
  void await(ShareAccount& account, ShareWaiter& waiter) noexcept { ledger_.await(account, waiter); }
  /// Cancels await(). No effect if `waiter` does not wait.
  void forget(ShareAccount& account, ShareWaiter& waiter) noexcept { ledger_.forget(account, waiter); }
  /// Calls waiters, up to the limit of this iteration.
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
