// SPDX-License-Identifier: Apache-2.0
#include "dataplane/base/share_ledger.h"

#include <gtest/gtest.h>

#include <array>
#include <random>
#include <string>
#include <vector>

namespace sluice {
namespace {

struct Waiter final : ShareWaiter {
  void on_share() noexcept override {
    ++called;
    if (ledger != nullptr && ledger->take(*account)) ++taken;
    if (order != nullptr) *order += name;
  }
  ShareLedger* ledger = nullptr;
  ShareAccount* account = nullptr;
  std::string* order = nullptr;
  char name = '?';
  int called = 0;
  int taken = 0;
};

TEST(ShareLedger, what_is_guaranteed_is_there_whatever_others_hold) {
  ShareLedger ledger({.elements = 8, .accounts = 2, .guaranteed = 2, .most = 8});
  ShareAccount greedy, modest;
  int taken = 0;
  while (ledger.take(greedy)) ++taken;
  EXPECT_EQ(taken, 6);
  EXPECT_TRUE(ledger.take(modest));
  EXPECT_TRUE(ledger.take(modest));
  EXPECT_FALSE(ledger.take(modest));
  EXPECT_EQ(ledger.free(), 0u);
}

TEST(ShareLedger, what_is_not_used_is_lent_up_to_the_most) {
  ShareLedger ledger({.elements = 8, .accounts = 3, .guaranteed = 1, .most = 5});
  ShareAccount alone;
  int taken = 0;
  while (ledger.take(alone)) ++taken;
  EXPECT_EQ(taken, 5);
  EXPECT_EQ(ledger.free(), 3u);
}

TEST(ShareLedger, what_is_guaranteed_is_not_lent_before_its_owner_comes) {
  ShareLedger ledger({.elements = 40, .accounts = 8, .guaranteed = 1, .most = 17});
  std::array<ShareAccount, 8> accounts;
  std::uint32_t taken = 0;
  for (std::size_t i = 1; i < accounts.size(); ++i)
    while (ledger.take(accounts[i])) ++taken;
  EXPECT_EQ(taken, 39u);
  EXPECT_TRUE(ledger.take(accounts[0])) << "the others came one by one, and lent what was left";
}

TEST(ShareLedger, who_has_gone_waits_no_more_and_gives_back_what_it_holds) {
  ShareLedger ledger({.elements = 3, .accounts = 2, .guaranteed = 1, .most = 3});
  ShareAccount leaving, staying;
  ASSERT_TRUE(ledger.take(leaving) && ledger.take(leaving) && ledger.take(staying));
  Waiter first, second;
  ledger.await(leaving, first);
  ledger.await(leaving, second);
  ledger.forget_all(leaving);
  EXPECT_EQ(ledger.waiters(), 0u);
  ledger.give_back(leaving);
  EXPECT_EQ(ledger.resume(10), 0u);
  EXPECT_EQ(first.called + second.called, 0);
  EXPECT_TRUE(ledger.take(staying));
  ledger.give_back(leaving);
  EXPECT_FALSE(ledger.take(staying)) << "the last is kept for who comes back";
}

TEST(ShareLedger, accounts_are_served_in_turn_and_not_in_the_order_of_their_waiters) {
  ShareLedger ledger({.elements = 1, .accounts = 4, .guaranteed = 0, .most = 1});
  ShareAccount holder;
  ASSERT_TRUE(ledger.take(holder));
  std::string order;
  std::array<ShareAccount, 3> accounts;
  std::array<Waiter, 9> waiters;
  for (std::size_t i = 0; i < accounts.size(); ++i) {
    for (std::size_t w = 0; w < 3; ++w) {
      Waiter& waiter = waiters[3 * i + w];
      waiter.order = &order;
      waiter.name = static_cast<char>('a' + i);
      ledger.await(accounts[i], waiter);
      ledger.await(accounts[i], waiter);  // no effect
    }
  }
  EXPECT_EQ(ledger.waiters(), 9u);
  EXPECT_EQ(ledger.resume(100), 0u);
  ledger.give_back(holder);
  EXPECT_EQ(ledger.resume(4), 4u);
  EXPECT_EQ(order, "abca");
  EXPECT_EQ(ledger.resume(100), 5u);
  EXPECT_EQ(order, "abcabcabc");
  EXPECT_EQ(ledger.waiters(), 0u);
}

TEST(ShareLedger, who_waits_for_a_guaranteed_element_comes_before_who_borrows) {
  ShareLedger ledger({.elements = 4, .accounts = 2, .guaranteed = 1, .most = 4});
  ShareAccount rich, poor;
  ASSERT_TRUE(ledger.take(rich) && ledger.take(rich) && ledger.take(rich));
  std::string order;
  Waiter of_rich, of_poor;
  of_rich = {};
  of_rich.ledger = of_poor.ledger = &ledger;
  of_rich.order = of_poor.order = &order;
  of_rich.account = &rich;
  of_poor.account = &poor;
  of_rich.name = 'r';
  of_poor.name = 'p';
  ledger.await(rich, of_rich);
  ledger.await(poor, of_poor);
  EXPECT_EQ(ledger.resume(10), 1u);
  EXPECT_EQ(order, "p");
  ledger.give_back(rich);
  EXPECT_EQ(ledger.resume(10), 1u);
  EXPECT_EQ(order, "pr");
}

/// Compares random takes and returns with a model of what each account holds and of what is free.
TEST(ShareLedger, books_balance_whatever_the_order) {
  constexpr std::size_t kAccounts = 8;
  constexpr ShareLimits kLimits{.elements = 20, .accounts = kAccounts, .guaranteed = 2, .most = 5};
  for (std::uint32_t seed = 1; seed <= 20; ++seed) {
    std::mt19937 random(seed);
    ShareLedger ledger(kLimits);
    std::array<ShareAccount, kAccounts> accounts;
    std::array<std::uint32_t, kAccounts> held{};
    for (int step = 0; step < 5000; ++step) {
      const std::size_t i = random() % kAccounts;
      if (random() % 3 == 0) {
        if (held[i] > 0) ledger.give_back(accounts[i]), --held[i];
      } else {
        const bool taken = ledger.take(accounts[i]);
        if (held[i] < kLimits.guaranteed) {
          ASSERT_TRUE(taken) << "whatever the others hold";
        }
        if (held[i] == kLimits.most) {
          ASSERT_FALSE(taken);
        }
        held[i] += taken ? 1 : 0;
      }
      std::uint32_t sum = ledger.free();
      for (std::size_t a = 0; a < kAccounts; ++a) {
        ASSERT_EQ(accounts[a].held(), held[a]);
        sum += held[a];
      }
      ASSERT_EQ(sum, kLimits.elements);
    }
  }
}

}  // namespace
}  // namespace sluice
