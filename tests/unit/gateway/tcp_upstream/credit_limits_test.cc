// SPDX-License-Identifier: Apache-2.0
#include "dataplane/gateway/tcp_upstream/upstream_addresses.h"

#include <gtest/gtest.h>

namespace sluice::tcp_upstream {
namespace {

struct FakeClient final : service::Client {
  std::uint16_t number() const noexcept override { return 1; }
  void limit_credits(std::uint32_t limit) noexcept override { credits = limit; }
  void disconnect() noexcept override {}
  bool call_back(std::span<const std::byte>, CallBackDone, void*) noexcept override { return false; }

  std::uint32_t credits = kNoLimit;
};

struct CreditLimitsTest : testing::Test {
  CreditLimitsTest() {
    limits.use(0);
    limits.use(1);
  }
  FakeClient client;
  CreditLimits limits{2};
};

TEST(OneUpstream, says_what_its_clients_have) {
  FakeClient client;
  CreditLimits limits(2);
  limits.use(3);
  limits.set(client, 3, 5, 9);
  EXPECT_EQ(client.credits, 5u);
  limits.set(client, 3, kNoLimit, 0);
  EXPECT_EQ(client.credits, kNoLimit);
}

TEST_F(CreditLimitsTest, one_that_grants_all_is_not_held_up_by_another) {
  limits.set(client, 0, 1, 16);
  EXPECT_EQ(client.credits, kNoLimit);
}

TEST_F(CreditLimitsTest, each_has_what_it_grants_beside_the_calls_at_the_others) {
  limits.set(client, 0, 1, 20);
  limits.set(client, 1, 8, 12);
  EXPECT_EQ(client.credits, 28u) << "8 of the second beside 20 at the first";
  limits.set(client, 0, 1, 2);
  EXPECT_EQ(client.credits, 13u) << "1 of the first beside 12 at the second";
}

TEST_F(CreditLimitsTest, one_that_comes_later_grants_all) {
  limits.set(client, 0, 1, 3);
  limits.set(client, 1, 1, 0);
  EXPECT_EQ(client.credits, 4u);
  limits.use(2);
  limits.set(client, 1, 1, 0);
  EXPECT_EQ(client.credits, kNoLimit);
}

TEST_F(CreditLimitsTest, what_a_client_had_is_not_its_successors) {
  limits.set(client, 0, 1, 3);
  limits.forget(1, 0);
  limits.set(client, 1, 1, 0);
  EXPECT_EQ(client.credits, kNoLimit);
}

}  // namespace
}  // namespace sluice::tcp_upstream
