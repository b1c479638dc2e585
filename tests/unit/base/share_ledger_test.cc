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
  ShareLedger ledger({.elements = 8, .guaranteed = 2, .most = 8});
  ShareAccount greedy, modest;
  ledger.open(greedy);
  ledger.open(modest);
  int taken = 0;
  while (ledger.take(greedy)) ++taken;
  EXPECT_EQ(taken, 6);
  EXPECT_TRUE(ledger.take(modest));
  EXPECT_TRUE(ledger.take(modest));
  EXPECT_FALSE(ledger.take(modest));
  EXPECT_EQ(ledger.free(), 0u);
}

TEST(ShareLedger, what_is_not_used_is_lent_up_to_the_most) {
  ShareLedger ledger({.elements = 8, .guaranteed = 1, .most = 5});
  ShareAccount alone;
  ledger.open(alone);
  int taken = 0;
  while (ledger.take(alone)) ++taken;
  EXPECT_EQ(taken, 5);
  EXPECT_EQ(ledger.free(), 3u);
}

TEST(ShareLedger, a_closed_account_is_guaranteed_nothing_and_gives_back_what_it_holds) {
  ShareLedger ledger({.elements = 4, .guaranteed = 2, .most = 4});
  ShareAccount leaving, staying;
  ledger.open(leaving);
  ledger.open(staying);
  ASSERT_TRUE(ledger.take(leaving));
  ledger.close(leaving);
  int taken = 0;
  while (ledger.take(staying)) ++taken;
  EXPECT_EQ(taken, 3);
  ledger.give_back(leaving);
  EXPECT_EQ(ledger.free(), 1u);
  // Opened again while it still holds some: these count.
  ledger.give_back(staying);
  ledger.open(leaving);
  EXPECT_TRUE(ledger.take(leaving));
  EXPECT_TRUE(ledger.take(leaving));
  EXPECT_EQ(ledger.free(), 0u);
}

TEST(ShareLedger, accounts_are_served_in_turn_and_not_in_the_order_of_their_waiters) {
  ShareLedger ledger({.elements = 1, .guaranteed = 0, .most = 1});
  ShareAccount holder;
  ledger.open(holder);
  ASSERT_TRUE(ledger.take(holder));
  std::string order;
  std::array<ShareAccount, 3> accounts;
  std::array<Waiter, 9> waiters;
  for (std::size_t i = 0; i < accounts.size(); ++i) {
    ledger.open(accounts[i]);
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
  ShareLedger ledger({.elements = 3, .guaranteed = 1, .most = 3});
  ShareAccount rich, poor;
  ledger.open(rich);
  ASSERT_TRUE(ledger.take(rich) && ledger.take(rich) && ledger.take(rich));
  ledger.open(poor);  // more is guaranteed than free until some are given back
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
  ledger.give_back(rich);
  EXPECT_EQ(ledger.resume(10), 1u);
  EXPECT_EQ(order, "p");
  ledger.give_back(rich);
  EXPECT_EQ(ledger.resume(10), 1u);
  EXPECT_EQ(order, "pr");
}

/// Random holders against a model: how many each has, and what is free.
TEST(ShareLedger, books_balance_whatever_the_order) {
  constexpr ShareLimits kLimits{.elements = 20, .guaranteed = 2, .most = 9};
  constexpr std::size_t kAccounts = 8;
  for (std::uint32_t seed = 1; seed <= 20; ++seed) {
    std::mt19937 random(seed);
    ShareLedger ledger(kLimits);
    std::array<ShareAccount, kAccounts> accounts;
    std::array<std::uint32_t, kAccounts> held{};
    std::array<bool, kAccounts> open{};
    for (int step = 0; step < 5000; ++step) {
      const std::size_t i = random() % kAccounts;
      const std::uint32_t free = ledger.free();
      switch (random() % 4) {
        case 0:
          open[i] ? ledger.close(accounts[i]) : ledger.open(accounts[i]);
          open[i] = !open[i];
          break;
        case 1:
          if (held[i] > 0) ledger.give_back(accounts[i]), --held[i];
          break;
        default: {
          const bool taken = ledger.take(accounts[i]);
          if (open[i] && held[i] < kLimits.guaranteed && free > 0) {
            ASSERT_TRUE(taken);
          }
          if (held[i] == kLimits.most) {
            ASSERT_FALSE(taken);
          }
          held[i] += taken ? 1 : 0;
          // No account goes beyond its guarantee with what is guaranteed to another open one.
          std::uint32_t owed = 0;
          for (std::size_t a = 0; a < kAccounts; ++a)
            if (open[a] && held[a] < kLimits.guaranteed) owed += kLimits.guaranteed - held[a];
          if (taken && held[i] > kLimits.guaranteed) {
            ASSERT_GE(ledger.free(), owed);
          }
        }
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
