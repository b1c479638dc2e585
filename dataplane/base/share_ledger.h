// SPDX-License-Identifier: Apache-2.0
//
// Shares of a pool: how many of its elements each account holds, how many it may take, and who waits for one.
// Each account is guaranteed some elements, which are kept for it whether it is in use or not: what was lent
// cannot be called back when its owner comes. The others are lent, and nobody holds more than a stated part.
// Accounts that wait are served in turn, whoever came first. Every operation but resume() and forget_all() is
// O(1); these cost as much as they serve. One reactor; nothing here allocates.
//
// The elements themselves are the owner's: it calls take() when it hands one out and give_back() when it has
// one again.
#pragma once

#include <cstdint>

#include "dataplane/base/intrusive_queue.h"
#include "dataplane/base/invariant.h"

namespace sluice {

/// Waits in an account for one element.
class ShareWaiter {
 public:
  /// It waits no more, and its account may take an element now.
  virtual void on_share() noexcept = 0;

  QueueLink<ShareWaiter> share_link;

 protected:
  ~ShareWaiter() = default;
};

class ShareLedger;

/// Of one holder, such as a connection or an upstream. Outlives its time in the ledger.
class ShareAccount {
 public:
  std::uint32_t held() const noexcept { return held_; }

  QueueLink<ShareAccount> turn_link;

 private:
  friend class ShareLedger;

  IntrusiveQueue<ShareWaiter, &ShareWaiter::share_link> waiting_;
  std::uint32_t held_ = 0;
};

struct ShareLimits {
  std::uint32_t elements = 0;    ///< in the pool
  std::uint32_t accounts = 0;    ///< that there are
  std::uint32_t guaranteed = 0;  ///< to each account; all of them together are at most `elements`
  std::uint32_t most = 0;        ///< that one account may hold
};

/// Half of the elements are the accounts' own, in equal parts. Nobody holds more than half of all.
constexpr ShareLimits equal_shares(std::uint32_t elements, std::uint32_t accounts) noexcept {
  return {.elements = elements,
          .accounts = accounts,
          .guaranteed = accounts > 0 ? elements / 2 / accounts : 0,
          .most = (elements + 1) / 2};
}
/// Fewest elements of which equal_shares() guarantees each account one.
constexpr std::uint32_t least_for_equal_shares(std::uint32_t accounts) noexcept {
  return 2 * accounts;
}

class ShareLedger {
 public:
  ShareLedger() = default;
  explicit ShareLedger(const ShareLimits& limits) noexcept { provide(limits); }
  ShareLedger(const ShareLedger&) = delete;
  ShareLedger& operator=(const ShareLedger&) = delete;

  /// Setup, before anything is taken.
  void provide(const ShareLimits& limits) noexcept {
    limits_ = limits;
    free_ = limits.elements;
    reserved_ = limits.accounts * limits.guaranteed;
    static_cast<void>(SLUICE_INVARIANT(reserved_ <= free_, pool_balance));
  }
  const ShareLimits& limits() const noexcept { return limits_; }
  std::uint32_t free() const noexcept { return free_; }
  /// Of all accounts.
  std::uint32_t waiters() const noexcept { return waiters_; }

  /// An account may always take what it is guaranteed; beyond that, what no other account is guaranteed.
  bool may_take(const ShareAccount& account) const noexcept {
    return account.held_ < limits_.most && free_ > (unused_guarantee(account) > 0 ? 0 : reserved_);
  }
  /// False, with no effect, if it may not.
  bool take(ShareAccount& account) noexcept {
    if (!may_take(account)) return false;
    reserved_ -= unused_guarantee(account);
    ++account.held_;
    --free_;
    settle(account);
    return true;
  }
  void give_back(ShareAccount& account) noexcept {
    if (!SLUICE_INVARIANT(account.held_ > 0 && free_ < limits_.elements, pool_balance)) return;
    reserved_ -= unused_guarantee(account);
    --account.held_;
    ++free_;
    settle(account);
  }

  /// `waiter` is called in the account's turn. No effect if it waits already.
  void await(ShareAccount& account, ShareWaiter& waiter) noexcept {
    if (waiter.share_link.linked()) return;
    account.waiting_.push_back(waiter);
    ++waiters_;
    place(account);
  }
  /// No effect if it does not wait in this account.
  void forget(ShareAccount& account, ShareWaiter& waiter) noexcept {
    if (!account.waiting_.contains(waiter)) return;
    account.waiting_.remove(waiter);
    --waiters_;
    place(account);
  }

  /// Nobody waits in the account any more.
  void forget_all(ShareAccount& account) noexcept {
    while (ShareWaiter* const waiter = account.waiting_.front()) forget(account, *waiter);
  }

  /// Calls those who wait and may take, one of an account at a time, at most `most` of them.
  /// Returns how many.
  std::uint32_t resume(std::uint32_t most) noexcept {
    std::uint32_t called = 0;
    for (ShareAccount* account; called < most && (account = next()) != nullptr; ++called) {
      Turns::unlink(*account);  // the others come first now
      ShareWaiter* const waiter = account->waiting_.pop_front();
      --waiters_;
      place(*account);
      waiter->on_share();
    }
    return called;
  }

 private:
  using Turns = IntrusiveQueue<ShareAccount, &ShareAccount::turn_link>;

  std::uint32_t unused_guarantee(const ShareAccount& account) const noexcept {
    return account.held_ < limits_.guaranteed ? limits_.guaranteed - account.held_ : 0;
  }
  ShareAccount* next() const noexcept {
    if (free_ > 0 && !entitled_.empty()) return entitled_.front();
    return free_ > reserved_ ? borrowing_.front() : nullptr;
  }
  void settle(ShareAccount& account) noexcept {
    reserved_ += unused_guarantee(account);
    place(account);
  }
  /// Puts it into the queue that it belongs to, or into none. Keeps its place if that is where it is.
  void place(ShareAccount& account) noexcept {
    Turns* turns = unused_guarantee(account) > 0 ? &entitled_ : &borrowing_;
    if (account.waiting_.empty() || account.held_ >= limits_.most) turns = nullptr;
    if (turns != nullptr && turns->contains(account)) return;
    Turns::unlink(account);
    if (turns != nullptr) turns->push_back(account);
  }

  ShareLimits limits_;
  std::uint32_t free_ = 0;
  std::uint32_t reserved_ = 0;  ///< sum of what accounts are guaranteed and do not hold
  std::uint32_t waiters_ = 0;
  Turns entitled_;   ///< accounts with waiters that hold less than they are guaranteed
  Turns borrowing_;  ///< other accounts with waiters that hold less than the most
};

}  // namespace sluice
