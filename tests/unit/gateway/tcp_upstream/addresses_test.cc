// SPDX-License-Identifier: Apache-2.0
#include "dataplane/gateway/tcp_upstream/upstream_addresses.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <vector>

namespace sluice::tcp_upstream {
namespace {

const PeerAddress kA = PeerAddress::from_ipv4(192, 0, 2, 1);
const PeerAddress kB = PeerAddress::from_ipv4(192, 0, 2, 2);
const PeerAddress kC = PeerAddress::from_ipv4(192, 0, 2, 3);
constexpr std::uint64_t kNow = 1'000'000'000'000;

struct Chosen : testing::Test {
  void found(const std::vector<segment::UpstreamAddress>& list) {
    std::strcpy(table[2].name, "nas");
    table[2].count = static_cast<std::uint32_t>(list.size());
    std::copy(list.begin(), list.end(), table[2].addresses.begin());
    shared.write(table);
  }
  PeerAddress current() const {
    return addresses.current() != nullptr ? *addresses.current() : PeerAddress{};
  }

  segment::UpstreamAddressTable table{};
  segment::SharedUpstreamAddresses shared{};
  Addresses addresses{shared, "nas"};
};

TEST_F(Chosen, none_is_known_before_a_name_is_resolved) {
  EXPECT_EQ(addresses.current(), nullptr);
  EXPECT_FALSE(addresses.poll(kNow));
  EXPECT_FALSE(addresses.failed(kA, kNow));
  found({{.address = kA}});
  EXPECT_TRUE(addresses.poll(kNow));
  EXPECT_EQ(current(), kA);
  EXPECT_FALSE(addresses.has_others());
}

TEST_F(Chosen, an_empty_list_takes_nothing_away) {
  found({{.address = kA}});
  addresses.poll(kNow);
  found({});
  EXPECT_FALSE(addresses.poll(kNow));
  EXPECT_EQ(current(), kA);
}

TEST_F(Chosen, another_upstreams_addresses_are_not_ours) {
  found({{.address = kA}});
  std::strcpy(table[2].name, "other");
  shared.write(table);
  addresses.poll(kNow);
  EXPECT_EQ(addresses.current(), nullptr);
}

TEST_F(Chosen, another_name_has_addresses_of_its_own) {
  std::strcpy(table[1].name, "other");
  table[1].count = 1;
  table[1].addresses[0].address = kC;
  found({{.address = kA}, {.address = kB}});
  addresses.poll(kNow);
  addresses.failed(kA, kNow);
  ASSERT_EQ(current(), kB);
  addresses.select("other", 7);
  EXPECT_EQ(current(), kC);
  EXPECT_FALSE(addresses.has_others());
  addresses.select("unknown", 7);
  EXPECT_EQ(addresses.current(), nullptr);
  addresses.select("nas", 7);
  EXPECT_EQ(current(), kA) << "what was known of it is not kept";
}

TEST_F(Chosen, a_port_is_found_with_the_addresses) {
  addresses.select("nas", 7);
  table[2].port = 9;
  found({});
  EXPECT_FALSE(addresses.poll(kNow));
  EXPECT_EQ(addresses.port(), 7) << "there is nowhere to use another";
  found({{.address = kA}});
  EXPECT_TRUE(addresses.poll(kNow));
  EXPECT_EQ(addresses.port(), 9);
  table[2].port = 10;
  found({{.address = kA}});
  EXPECT_TRUE(addresses.poll(kNow));
  EXPECT_FALSE(addresses.poll(kNow));
  EXPECT_EQ(addresses.port(), 10);
}

TEST_F(Chosen, one_that_does_not_answer_is_passed_over) {
  found({{.address = kA}, {.address = kB, .failures = segment::kBadChecks}, {.address = kC}});
  addresses.poll(kNow);
  EXPECT_TRUE(addresses.failed(kA, kNow));
  EXPECT_EQ(current(), kC);
  EXPECT_TRUE(addresses.failed(kC, kNow));
  EXPECT_EQ(current(), kB) << "better than those that have failed just now";
}

TEST_F(Chosen, when_the_current_one_is_gone_the_best_of_the_others_is_taken) {
  found({{.address = kA}});
  addresses.poll(kNow);
  found({{.address = kB, .failures = segment::kBadChecks}, {.address = kC}});
  EXPECT_TRUE(addresses.poll(kNow));
  EXPECT_EQ(current(), kC);
}

TEST_F(Chosen, connections_that_fail_together_are_one_failure) {
  found({{.address = kA}, {.address = kB}});
  addresses.poll(kNow);
  EXPECT_TRUE(addresses.failed(kA, kNow));
  EXPECT_FALSE(addresses.failed(kA, kNow + 1));
  EXPECT_TRUE(addresses.failed(kB, kNow + 2));
  EXPECT_EQ(current(), kA) << "both have failed; this one may be tried first";
  EXPECT_FALSE(addresses.failed(kA, kNow + 3));
  EXPECT_TRUE(addresses.failed(kA, kNow + kAwayNs));
  EXPECT_EQ(current(), kB);
}

TEST_F(Chosen, one_that_has_failed_is_left_alone_for_a_while) {
  found({{.address = kA}, {.address = kB}, {.address = kC}});
  addresses.poll(kNow);
  addresses.failed(kA, kNow);
  EXPECT_TRUE(addresses.failed(kB, kNow + 1));
  EXPECT_EQ(current(), kC);
  EXPECT_TRUE(addresses.failed(kC, kNow + kAwayNs));
  EXPECT_EQ(current(), kA);
}

TEST_F(Chosen, one_that_is_not_in_use_may_fail_without_a_change) {
  found({{.address = kA}, {.address = kB}, {.address = kC}});
  addresses.poll(kNow);
  EXPECT_FALSE(addresses.failed(kB, kNow));
  EXPECT_EQ(current(), kA);
  EXPECT_TRUE(addresses.failed(kA, kNow));
  EXPECT_EQ(current(), kC);
  EXPECT_FALSE(addresses.failed(kB, kNow + 2 * kAwayNs));
  EXPECT_EQ(current(), kC) << "though a preferred one could be tried again";
}

TEST_F(Chosen, the_addresses_of_one_host_are_equal) {
  found({{.address = kA}, {.address = kB}});
  addresses.poll(kNow);
  found({{.address = kB, .answers = 50}, {.address = kA, .answers = 50}});
  EXPECT_FALSE(addresses.poll(kNow)) << "their order is no preference";
  EXPECT_TRUE(addresses.failed(kA, kNow));
  found({{.address = kA, .answers = 99}, {.address = kB, .answers = 50}});
  EXPECT_FALSE(addresses.poll(kNow)) << "nor is which one was used first";
  EXPECT_EQ(current(), kB);
}

TEST_F(Chosen, of_several_preferred_hosts_the_first_is_used_again) {
  found({{.address = kA, .host = 2}, {.address = kB, .host = 1}, {.address = kC, .host = 0}});
  addresses.poll(kNow);
  found(
      {{.address = kA, .host = 2}, {.address = kB, .answers = 9, .host = 1}, {.address = kC, .answers = 9}});
  EXPECT_TRUE(addresses.poll(kNow));
  EXPECT_EQ(current(), kC);
}

TEST_F(Chosen, answers_before_a_failure_do_not_count) {
  const auto found = [this](std::vector<segment::UpstreamAddress> list) {
    list[1].host = 1;
    Chosen::found(list);
  };
  found({{.address = kA, .answers = 20}, {.address = kB, .answers = 20}});
  addresses.poll(kNow);
  addresses.failed(kA, kNow);
  EXPECT_FALSE(addresses.poll(kNow));
  found({{.address = kA, .answers = 20 + kGraceAnswers - 1}, {.address = kB, .answers = 30}});
  EXPECT_FALSE(addresses.poll(kNow));
  found({{.address = kA, .answers = 0, .failures = 1}, {.address = kB, .answers = 31}});
  EXPECT_FALSE(addresses.poll(kNow));
  found({{.address = kA, .answers = kGraceAnswers - 1}, {.address = kB, .answers = 40}});
  EXPECT_FALSE(addresses.poll(kNow));
  found({{.address = kA, .answers = kGraceAnswers}, {.address = kB, .answers = 41}});
  EXPECT_TRUE(addresses.poll(kNow));
  EXPECT_EQ(current(), kA);
}

}  // namespace
}  // namespace sluice::tcp_upstream
