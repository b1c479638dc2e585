// SPDX-License-Identifier: Apache-2.0
//
// Shares of a pool: the number of elements that each account holds and may take, and the waiters for an
// element. Each account is guaranteed some elements, which are reserved for it even while it is idle, because
// borrowed elements cannot be reclaimed when their owner needs them. The remaining elements are lent, up to a
// limit per account. Waiting accounts are served round robin, one waiter of an account at a time. Every
// operation except resume() and forget_all() is O(1); those two are linear in the number of waiters that they
// handle. One reactor; no allocation.
//
// The ledger's owner keeps the elements themselves: it calls take() when it hands out an element and
// give_back() when the element is returned.
#pragma once

#include <cstdint>

#include "dataplane/base/intrusive_lists.h"
#include "dataplane/base/invariant.h"

namespace sluice {

/// Waiter for one element, in an account.
class ShareWaiter {
 public:
  /// Called when the waiter has left the queue and its account may take an element.
  virtual void on_share() noexcept = 0;

  QueueLink<ShareWaiter> share_link;

 protected:
  ~ShareWaiter() = default;
};

class ShareLedger;

/// Account of one holder, such as a connection or an upstream. It outlives its time in the ledger.
class ShareAccount {
 public:
  std::uint32_t held() const noexcept { return held_; }

  QueueLink<ShareAccount> round_link;

 private:
  friend class ShareLedger;

  IntrusiveQueue<ShareWaiter, &ShareWaiter::share_link> waiting_;
  std::uint32_t held_ = 0;
};

struct ShareLimits {
  std::uint32_t elements = 0;    ///< elements in the pool
  std::uint32_t accounts = 0;    ///< number of accounts
  std::uint32_t guaranteed = 0;  ///< guaranteed per account; the total is at most `elements`
  std::uint32_t most = 0;        ///< maximum that one account may hold
};

/// Returns limits that guarantee half of the elements to the accounts, in equal parts. No account may hold
/// more than half of all elements.
constexpr ShareLimits equal_shares(std::uint32_t elements, std::uint32_t accounts) noexcept {
  return {.elements = elements,
          .accounts = accounts,
          .guaranteed = accounts > 0 ? elements / 2 / accounts : 0,
          .most = (elements + 1) / 2};
}
/// Returns the minimum of elements for which equal_shares() guarantees one to each account.
constexpr std::uint32_t least_for_equal_shares(std::uint32_t accounts) noexcept {
  return 2 * accounts;
}

class ShareLedger {
 public:
  ShareLedger() = default;
  explicit ShareLedger(const ShareLimits& limits) noexcept { provide(limits); }
  ShareLedger(const ShareLedger&) = delete;
  ShareLedger& operator=(const ShareLedger&) = delete;

  /// Sets the limits. Called at setup, before any element is taken.
  void provide(const ShareLimits& limits) noexcept {
    static_cast<void>(SLUICE_INVARIANT(free_ == limits_.elements && waiters_ == 0, pool_balance));
    limits_ = limits;
    free_ = limits.elements;
    reserved_ = limits.accounts * limits.guaranteed;
    static_cast<void>(SLUICE_INVARIANT(reserved_ <= free_, pool_balance));
  }
  const ShareLimits& limits() const noexcept { return limits_; }
  std::uint32_t free() const noexcept { return free_; }
  /// Returns the number of waiters in all accounts.
  std::uint32_t waiters() const noexcept { return waiters_; }

  /// Returns whether an account may take an element. It may always take its guaranteed elements; beyond
  /// those, only elements that are not reserved for other accounts.
  bool may_take(const ShareAccount& account) const noexcept {
    return account.held_ < limits_.most && free_ > (unused_guarantee(account) > 0 ? 0 : reserved_);
  }
  /// Takes an element. Returns false, with no effect, if the account may not take one.
  bool take(ShareAccount& account) noexcept {
    if (!may_take(account)) return false;
    reserved_ -= unused_guarantee(account);
    ++account.held_;
    --free_;
    SLUICE_INVARIANT_DEBUG(account.held_ <= limits_.most, pool_balance);
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

  /// Adds a waiter, which is called when the account is served. No effect if it already waits.
  void await(ShareAccount& account, ShareWaiter& waiter) noexcept {
    if (waiter.share_link.linked()) return;
    account.waiting_.push_back(waiter);
    ++waiters_;
    place(account);
  }
  /// Removes a waiter. No effect if it does not wait in this account.
  void forget(ShareAccount& account, ShareWaiter& waiter) noexcept {
    if (!account.waiting_.contains(waiter)) return;
    account.waiting_.remove(waiter);
    static_cast<void>(SLUICE_INVARIANT(waiters_ > 0, list_membership));
    --waiters_;
    place(account);
  }

  /// Removes all waiters of an account.
  void forget_all(ShareAccount& account) noexcept {
    while (ShareWaiter* const waiter = account.waiting_.front()) forget(account, *waiter);
  }

  /// Calls waiters whose accounts may take an element, one per account at a time, at most `most` in total.
  /// Returns the number of calls.
  std::uint32_t resume(std::uint32_t most) noexcept {
    std::uint32_t called = 0;
    for (ShareAccount* account; called < most && (account = next()) != nullptr; ++called) {
      Rounds::unlink(*account);  // moves the account to the end of its queue
      ShareWaiter* const waiter = account->waiting_.pop_front();
      SLUICE_INVARIANT_DEBUG(waiter != nullptr && waiters_ > 0, list_membership);
      --waiters_;
      place(*account);
      waiter->on_share();
    }
    return called;
  }

 private:
  using Rounds = IntrusiveQueue<ShareAccount, &ShareAccount::round_link>;

  std::uint32_t unused_guarantee(const ShareAccount& account) const noexcept {
    return account.held_ < limits_.guaranteed ? limits_.guaranteed - account.held_ : 0;
  }
  ShareAccount* next() const noexcept {
    if (free_ > 0 && !entitled_.empty()) return entitled_.front();
    return free_ > reserved_ ? borrowing_.front() : nullptr;
  }
  void settle(ShareAccount& account) noexcept {
    reserved_ += unused_guarantee(account);
    SLUICE_INVARIANT_DEBUG(reserved_ <= free_ && free_ <= limits_.elements, pool_balance);
    place(account);
  }
  /// Moves an account to the queue that it belongs to, or to none. An account that is already there keeps its
  /// position.
  void place(ShareAccount& account) noexcept {
    Rounds* turns = unused_guarantee(account) > 0 ? &entitled_ : &borrowing_;
    if (account.waiting_.empty() || account.held_ >= limits_.most) turns = nullptr;
    if (turns != nullptr && turns->contains(account)) return;
    Rounds::unlink(account);
    if (turns != nullptr) turns->push_back(account);
  }

  ShareLimits limits_;
  std::uint32_t free_ = 0;
  std::uint32_t reserved_ = 0;  ///< guaranteed elements that their accounts do not hold
  std::uint32_t waiters_ = 0;
  Rounds entitled_;   ///< accounts with waiters that hold less than they are guaranteed
  Rounds borrowing_;  ///< other accounts with waiters that hold less than the most
};

}  // namespace sluice
