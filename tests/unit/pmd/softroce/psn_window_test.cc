// SPDX-License-Identifier: Apache-2.0
//
// Compiled twice: like tests, where a failed invariant aborts, and like a release, where it is counted.
#include "pmd/softroce/psn_window.h"

#include <gtest/gtest.h>

namespace sluice::rdma::softroce {
namespace {

constexpr std::uint32_t kFirst = 0xFFFFFE;  // wraps after two packets

class Psns : public testing::Test {
 protected:
  Psns() {
    window_.open(kFirst, 8);
    EXPECT_TRUE(window_.sent(4));
  }
  /// Checks that `call`, which breaks the invariant and returns whether it was accepted, is refused.
  template <typename Call>
  void expect_refused(Call call) {
    if constexpr (kAbortOnInvariant) {
      EXPECT_DEATH(call(), "invariant psn_window does not hold");
    } else {
      const auto& failures = invariant_failures()[static_cast<std::size_t>(Invariant::psn_window)];
      const std::uint64_t before = failures;
      EXPECT_FALSE(call());
      EXPECT_EQ(failures, before + 1);
    }
  }
  PsnWindow window_;
};

TEST_F(Psns, what_was_sent_is_outstanding_until_it_is_acknowledged) {
  EXPECT_EQ(window_.unacknowledged(), kFirst);
  EXPECT_EQ(window_.next(), 2u);
  EXPECT_EQ(window_.end(), 2u);
  EXPECT_EQ(window_.in_flight(), 4u);
  EXPECT_FALSE(window_.contains(kFirst - 1));
  EXPECT_TRUE(window_.contains(kFirst));
  EXPECT_TRUE(window_.contains(1));
  EXPECT_FALSE(window_.contains(2));
  EXPECT_TRUE(window_.acknowledge_before(0));
  EXPECT_FALSE(window_.contains(0xFFFFFF));
  EXPECT_TRUE(window_.contains(0));
  EXPECT_TRUE(window_.outstanding());
  EXPECT_TRUE(window_.acknowledge_before(2));
  EXPECT_FALSE(window_.outstanding());
}

TEST_F(Psns, retransmission_starts_at_the_oldest_and_skips_what_is_acknowledged_meanwhile) {
  EXPECT_FALSE(window_.retransmitting());
  EXPECT_TRUE(window_.acknowledge_before(0xFFFFFF));
  window_.go_back();
  EXPECT_TRUE(window_.retransmitting());
  EXPECT_EQ(window_.next(), 0xFFFFFFu);
  EXPECT_EQ(window_.end(), 2u);
  EXPECT_TRUE(window_.sent(1));
  EXPECT_EQ(window_.next(), 0u);
  EXPECT_EQ(window_.end(), 2u);
  EXPECT_TRUE(window_.acknowledge_before(1));
  EXPECT_EQ(window_.next(), 1u);
  EXPECT_TRUE(window_.sent(1));
  EXPECT_FALSE(window_.retransmitting());
}

TEST_F(Psns, no_more_are_outstanding_than_there_may_be) {
  expect_refused([&] { return window_.sent(5); });
  EXPECT_EQ(window_.next(), 2u);
  EXPECT_TRUE(window_.sent(4));
}

TEST_F(Psns, nothing_is_acknowledged_that_was_not_sent_or_for_a_second_time) {
  expect_refused([&] { return window_.acknowledge_before(3); });
  EXPECT_TRUE(window_.acknowledge_before(0));
  expect_refused([&] { return window_.acknowledge_before(0xFFFFFF); });
  EXPECT_EQ(window_.unacknowledged(), 0u);
  EXPECT_EQ(window_.next(), 2u);
}

}  // namespace
}  // namespace sluice::rdma::softroce
