// SPDX-License-Identifier: Apache-2.0
#include "controlplane/policy/credit_policy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

namespace sluice::policy {
namespace {

std::vector<std::uint32_t> shares_of(const std::vector<Claim>& claims, std::uint64_t budget,
                                     std::size_t first = 0) {
  std::vector<std::uint32_t> shares(claims.size());
  fair_shares(claims, budget, first, shares);
  return shares;
}

TEST(FairShares, enough_for_all_gives_all_what_they_can_use) {
  EXPECT_EQ(shares_of({{1, 1, 4}, {1, 1, 64}}, 100), (std::vector<std::uint32_t>{4, 64}));
  EXPECT_EQ(shares_of({}, 100), std::vector<std::uint32_t>{});
}

TEST(FairShares, what_one_cannot_use_is_divided_among_the_others_by_weight) {
  EXPECT_EQ(shares_of({{1, 1, 64}, {1, 1, 64}}, 64), (std::vector<std::uint32_t>{32, 32}));
  EXPECT_EQ(shares_of({{1, 1, 64}, {3, 1, 64}}, 64), (std::vector<std::uint32_t>{16, 48}));
  EXPECT_EQ(shares_of({{1, 1, 4}, {1, 1, 64}, {1, 1, 64}}, 64), (std::vector<std::uint32_t>{4, 30, 30}));
}

TEST(FairShares, the_least_is_given_in_any_case) {
  EXPECT_EQ(shares_of({{1, 4, 64}, {1, 4, 64}, {1, 4, 64}}, 6), (std::vector<std::uint32_t>{4, 4, 4}));
  EXPECT_EQ(shares_of({{100, 1, 64}, {1, 1, 64}}, 20), (std::vector<std::uint32_t>{19, 1}));
}

TEST(FairShares, what_whole_numbers_leave_over_goes_round) {
  const std::vector<Claim> three(3, {1, 1, 64});
  EXPECT_EQ(shares_of(three, 11, 0), (std::vector<std::uint32_t>{4, 4, 3}));
  EXPECT_EQ(shares_of(three, 11, 1), (std::vector<std::uint32_t>{3, 4, 4}));
  EXPECT_EQ(shares_of(three, 11, 2), (std::vector<std::uint32_t>{4, 3, 4}));
}

TEST(FairShares, the_budget_is_used_and_not_exceeded_whatever_the_claims) {
  std::mt19937 random(7);
  const auto below = [&](std::uint64_t end) { return static_cast<std::uint32_t>(random() % end); };
  for (int round = 0; round < 300; ++round) {
    std::vector<Claim> claims(1 + below(200));
    std::uint64_t least = 0;
    std::uint64_t most = 0;
    for (Claim& claim : claims) {
      claim.weight = 1 + below(10);
      claim.least = 1 + below(3);
      claim.most = claim.least + below(100);
      least += claim.least;
      most += claim.most;
    }
    const std::uint64_t budget = below(2 * most);
    const auto shares = shares_of(claims, budget, below(1000));
    const std::uint64_t total = std::accumulate(shares.begin(), shares.end(), std::uint64_t{0});
    EXPECT_LE(total, std::max(budget, least));
    EXPECT_GE(total + 1, std::min(std::max(budget, least), most)) << "left unused";
    for (std::size_t i = 0; i < claims.size(); ++i) {
      EXPECT_GE(shares[i], claims[i].least);
      EXPECT_LE(shares[i], claims[i].most);
    }
  }
}

}  // namespace
}  // namespace sluice::policy
