// SPDX-License-Identifier: Apache-2.0
//
// Compiled twice: like tests, where a failed invariant aborts, and like a release, where it is counted.
#include "dataplane/base/invariant.h"

#include <gtest/gtest.h>

#include <thread>

#include "dataplane/base/thread_owner.h"
#include "tests/unit/base/counted_invariants.h"

namespace sluice {
namespace {

std::uint64_t credit_failures() {
  return invariant_failures()[static_cast<std::size_t>(Invariant::credit_balance)];
}

TEST(Invariant, one_that_holds_is_true_and_counts_nothing) {
  const int balance = 1;
  EXPECT_TRUE(SLUICE_INVARIANT(balance > 0, credit_balance));
  for (const std::uint64_t failures : invariant_failures()) EXPECT_EQ(failures, 0u);
}

TEST(Invariant, one_that_fails_aborts_in_tests_and_counts_in_a_release) {
  const int balance = -1;
  if constexpr (kAbortOnInvariant) {
    EXPECT_DEATH(static_cast<void>(SLUICE_INVARIANT(balance >= 0, credit_balance)),
                 "invariant_test.cc:[0-9]+: invariant credit_balance does not hold: balance >= 0");
  } else {
    EXPECT_FALSE(SLUICE_INVARIANT(balance >= 0, credit_balance));
    EXPECT_EQ(credit_failures(), 1u);
    std::thread([] { EXPECT_EQ(credit_failures(), 0u); }).join();  // each reactor publishes its own
  }
}

TEST(Invariant, one_of_the_message_path_is_evaluated_only_in_builds_that_abort) {
  int evaluated = 0;
  SLUICE_INVARIANT_DEBUG(++evaluated > 0, credit_balance);
  EXPECT_EQ(evaluated, kAbortOnInvariant ? 1 : 0);
  const CountedInvariants counted;
  SLUICE_INVARIANT_DEBUG(evaluated < 0, credit_balance);
  EXPECT_EQ(counted.failed(Invariant::credit_balance), kAbortOnInvariant ? 1u : 0u);
}

TEST(Invariant, an_object_belongs_to_the_first_thread_that_uses_it) {
  ThreadOwner owner;
  EXPECT_TRUE(owner.is_caller());
  std::thread([&owner] {
    const CountedInvariants counted;
    EXPECT_FALSE(SLUICE_INVARIANT(owner.is_caller(), object_owner));
    EXPECT_EQ(counted.failed(Invariant::object_owner), 1u);
  }).join();
  EXPECT_TRUE(owner.is_caller());
  owner.pass_on();
  std::thread([&owner] { EXPECT_TRUE(owner.is_caller()); }).join();
  EXPECT_FALSE(owner.is_caller());
}

}  // namespace
}  // namespace sluice
