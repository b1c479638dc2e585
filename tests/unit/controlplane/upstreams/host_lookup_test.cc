// SPDX-License-Identifier: Apache-2.0
#include "controlplane/tasks/arena.h"
#include "controlplane/upstreams/address_table.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <atomic>
#include <future>
#include <memory>

namespace sluice::upstreams {
namespace {

/// Waits for the result. A result that never comes ends the test by its timeout.
LookupResult taken(tasks::Arena& arena, HostLookup& lookup) {
  for (;;) {
    if (auto result = lookup.take()) return *std::move(result);
    pollfd wake{arena.descriptor(), POLLIN, 0};
    ::poll(&wake, 1, -1);
    arena.deliver();
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

/// RFC 6761, section 6.4: no name server resolves it.
TEST(HostLookup, a_name_that_nobody_has_is_a_problem) {
  const LookupResult result = look_up("nas.invalid");
  EXPECT_TRUE(result.addresses.empty());
  EXPECT_FALSE(result.problem.empty());
}

TEST(HostLookup, nothing_waits_for_a_slow_one) {
  tasks::Arena arena({.threads = 2, .queued = 2});
  auto answer = std::make_shared<std::promise<LookupResult>>();
  HostLookup slow;
  ASSERT_TRUE(slow.begin(
      arena, [answer](const std::string&) { return answer->get_future().get(); }, "slow"));
  EXPECT_TRUE(slow.running());
  EXPECT_FALSE(slow.take());
  HostLookup quick;
  ASSERT_TRUE(quick.begin(
      arena,
      [](const std::string& host) {
        return LookupResult{{}, host};
      },
      "quick"));
  EXPECT_EQ(taken(arena, quick).problem, "quick");
  EXPECT_FALSE(quick.running());
  EXPECT_FALSE(slow.take());
  answer->set_value({{PeerAddress::from_ipv4(10, 0, 0, 1)}, {}});
  EXPECT_EQ(taken(arena, slow).addresses.size(), 1u);
}

TEST(HostLookup, one_that_is_not_waited_for_any_more_ends_alone) {
  tasks::Arena arena({.threads = 1, .queued = 2});
  auto answer = std::make_shared<std::promise<LookupResult>>();
  auto asked = std::make_shared<std::promise<void>>();
  auto never = std::make_shared<std::atomic<int>>(0);
  {
    HostLookup lookup;
    ASSERT_TRUE(lookup.begin(
        arena,
        [answer, asked](const std::string&) {
          asked->set_value();
          return answer->get_future().get();
        },
        "slow"));
    asked->get_future().wait();
    HostLookup waits;
    ASSERT_TRUE(waits.begin(
        arena,
        [never](const std::string&) {
          ++*never;
          return LookupResult{};
        },
        "waits"));
  }
  answer->set_value({});
  HostLookup last;
  ASSERT_TRUE(last.begin(
      arena,
      [](const std::string& host) {
        return LookupResult{{}, host};
      },
      "last"));
  EXPECT_EQ(taken(arena, last).problem, "last");
  EXPECT_EQ(*never, 0) << "it was dropped before its turn";
}

TEST(HostLookup, a_full_arena_refuses) {
  tasks::Arena arena({.threads = 1, .queued = 0});
  auto answer = std::make_shared<std::promise<LookupResult>>();
  HostLookup slow;
  HostLookup other;
  const LookUp wait = [answer](const std::string&) { return answer->get_future().get(); };
  ASSERT_TRUE(slow.begin(arena, wait, "slow"));
  EXPECT_FALSE(other.begin(arena, wait, "other"));
  EXPECT_FALSE(other.running());
  answer->set_value({{}, "late"});
  EXPECT_EQ(taken(arena, slow).problem, "late");
}

}  // namespace
}  // namespace sluice::upstreams
