// SPDX-License-Identifier: Apache-2.0
#include "controlplane/upstreams/host_lookup.h"

#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <memory>
#include <thread>

namespace sluice::upstreams {
namespace {

/// Waits; what does not come ends the test by its limit.
LookupResult taken(HostLookup& lookup) {
  for (;;) {
    if (auto result = lookup.take()) return *std::move(result);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

TEST(HostLookup, addresses_are_no_names) {
  EXPECT_EQ(parse_address("192.0.2.1"), PeerAddress::from_ipv4(192, 0, 2, 1));
  EXPECT_EQ(to_string(parse_address("2001:db8::7").value_or(PeerAddress{})), "2001:db8::7");
  EXPECT_FALSE(parse_address("nas"));
  EXPECT_FALSE(parse_address("192.0.2"));
}

TEST(HostLookup, the_systems_resolver_knows_this_host) {
  const LookupResult result = look_up("localhost");
  ASSERT_FALSE(result.addresses.empty()) << result.problem;
  for (const PeerAddress& address : result.addresses)
    EXPECT_TRUE(to_string(address) == "127.0.0.1" || to_string(address) == "::1") << to_string(address);
}

/// RFC 6761, section 6.4: no name server has it.
TEST(HostLookup, a_name_that_nobody_has_is_a_problem) {
  const LookupResult result = look_up("nas.invalid");
  EXPECT_TRUE(result.addresses.empty());
  EXPECT_FALSE(result.problem.empty());
}

TEST(HostLookup, nothing_waits_for_a_slow_one) {
  auto answer = std::make_shared<std::promise<LookupResult>>();
  HostLookup slow;
  slow.begin([answer](const std::string&) { return answer->get_future().get(); }, "slow");
  EXPECT_TRUE(slow.running());
  EXPECT_FALSE(slow.take());
  HostLookup quick;
  quick.begin([](const std::string& host) { return LookupResult{{}, host}; }, "quick");
  EXPECT_EQ(taken(quick).problem, "quick");
  EXPECT_FALSE(quick.running());
  EXPECT_FALSE(slow.take());
  answer->set_value({{PeerAddress::from_ipv4(10, 0, 0, 1)}, {}});
  EXPECT_EQ(taken(slow).addresses.size(), 1u);
}

TEST(HostLookup, one_that_is_not_waited_for_any_more_ends_alone) {
  auto answer = std::make_shared<std::promise<LookupResult>>();
  auto ended = std::make_shared<std::promise<void>>();
  {
    HostLookup lookup;
    lookup.begin(
        [answer, ended](const std::string&) {
          LookupResult result = answer->get_future().get();
          ended->set_value();
          return result;
        },
        "slow");
  }
  answer->set_value({});
  ended->get_future().wait();
}

}  // namespace
}  // namespace sluice::upstreams
