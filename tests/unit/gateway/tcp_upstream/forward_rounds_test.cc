// SPDX-License-Identifier: Apache-2.0
//
// Periodic work of an upstream, for any number of clients and calls: everything is done once per interval, a
// little in each iteration.
#include "dataplane/base/clock.h"
#include "tests/unit/gateway/open_registry.h"
#include "tests/unit/gateway/tcp_upstream/echoed_calls.h"

namespace sluice::tcp_upstream_test {
namespace {

using Counter = segment::UpstreamCounter;

/// An upstream of a reactor for `clients` clients, with no connection in use. Its state is published at the
/// end of each round.
struct IdleUpstream {
  explicit IdleUpstream(std::uint32_t clients) : credits(clients), cache(4096, clients) {
    tcp_upstream::UpstreamSetup setup;
    setup.config.name = "upstream";
    setup.config.addresses = addresses.get();
    setup.config.max_clients = clients;
    setup.config.cache = &cache;
    setup.area = area.get();
    most = setup.config.all_connections();
    upstreams = std::make_unique<tcp_upstream::Upstreams>(
        *device, credits, registry, tcp_upstream::UpstreamsConfig{.upstreams = {setup}}, &ForwardLab::clock);
    slots = std::make_unique<gateway::UpstreamSlots>(std::vector<segment::UpstreamArea*>{area.get()},
                                                     upstreams->sides(), gateway::UpstreamSlots::Sides{});
    slots->start(0, setup.config);
  }
  bool published(std::uint64_t now_ns) {
    area->connections = 99;
    upstreams->poll(now_ns);
    return area->connections == 0;
  }

  std::uint32_t most = 0;
  std::unique_ptr<segment::SharedUpstreamAddresses> addresses =
      std::make_unique<segment::SharedUpstreamAddresses>();
  std::unique_ptr<segment::UpstreamArea> area = std::make_unique<segment::UpstreamArea>();
  std::shared_ptr<rdma::loopback::Fabric> fabric = rdma::loopback::Fabric::in_process({.links = 2});
  std::unique_ptr<rdma::loopback::Loopback> device = rdma::loopback::make_device(fabric, {.name = "gateway"});
  tcp_upstream::CreditLimits credits;
  tcp_upstream::DuplicateRequestCache cache;
  OpenRegistry registry;
  std::unique_ptr<tcp_upstream::Upstreams> upstreams;
  std::unique_ptr<gateway::UpstreamSlots> slots;
};

constexpr std::uint64_t kHourNs = 3600 * kSecond;

TEST(ForwardRounds, the_state_is_published_once_in_an_interval) {
  for (const std::uint32_t clients : {8u, 1000u}) {
    IdleUpstream upstream(clients);
    const std::uint64_t begin_ns = ForwardLab::clock() + kHourNs;
    for (std::uint64_t ns = 0; ns < tcp_upstream::kCreditIntervalNs; ns += 100'000)
      upstream.published(begin_ns + ns);
    std::uint32_t count = 0;
    for (std::uint64_t ns = tcp_upstream::kCreditIntervalNs; ns < 6 * tcp_upstream::kCreditIntervalNs;
         ns += 100'000)
      count += upstream.published(begin_ns + ns);
    EXPECT_EQ(count, 5u) << clients;
  }
}

TEST(ForwardRounds, a_turn_looks_at_a_few_of_many_connections) {
  IdleUpstream upstream(1000);
  std::uint64_t now_ns = ForwardLab::clock() + kHourNs;
  for (int round = 0; round < 3; ++round) {
    std::uint32_t turns = 1;
    while (!upstream.published(now_ns += tcp_upstream::kCreditIntervalNs)) ++turns;
    EXPECT_GE(turns, upstream.most / PacedRound::kMostInATurn) << "each as late as can be";
    EXPECT_LE(turns, upstream.most / PacedRound::kMostInATurn + 1);
  }
}

TEST(ForwardRounds, calls_without_a_client_have_their_turn_one_by_one) {
  tcp_upstream::Orphans orphans(5);
  const auto connection =
      reinterpret_cast<tcp_upstream::UpstreamConnection*>(&orphans);  // not used, but not null
  tcp_upstream::ForwardedCall& first = orphans.take();
  tcp_upstream::ForwardedCall& second = orphans.take();
  first.connection = second.connection = connection;
  for (int round = 0; round < 3; ++round) {
    int seen_first = 0, seen_second = 0;
    for (std::uint32_t i = 0; i < orphans.places(); ++i)
      orphans.visit_next(1, [&](const tcp_upstream::ForwardedCall& call) {
        seen_first += &call == &first;
        seen_second += &call == &second;
      });
    EXPECT_EQ(seen_first, 1);
    EXPECT_EQ(seen_second, 1);
  }
}

/// Twice as many calls on one connection as an iteration examines.
struct ManyCalls : testing::Test {
  static constexpr std::uint32_t kClients = 4;
  static constexpr std::uint32_t kOfClient = tcp_upstream::kCallsInATurn / 2;
  static constexpr std::uint32_t kCalls = kClients * kOfClient;
  ForwardLab lab{
      {.credits = kOfClient, .shared_connections = 1, .max_calls = 512, .call_timeout_ns = 60 * kSecond}};

  void SetUp() override {
    for (std::uint32_t i = 0; i < kClients; ++i) warmed_client(lab);
    for (const auto& client : lab.clients)
      for (std::uint32_t i = 0; i < kOfClient; ++i)
        client->submit({.payload = plain(i), .max_reply_bytes = 64});
    ASSERT_TRUE(lab.until([&] { return lab.upstream.calls.size() == kCalls; }));
  }
  std::uint32_t unfinished() const {
    std::uint32_t count = 0;
    for (const auto& client : lab.clients)
      for (const auto& outcome : client->finished) count += !outcome.has_value();
    return count;
  }
};

TEST_F(ManyCalls, a_turn_looks_at_a_few_of_them) {
  lab.pass(61 * kSecond);
  lab.upstreams->poll(ForwardLab::clock());
  EXPECT_EQ(lab.count(Counter::timeouts), tcp_upstream::kCallsInATurn);
  EXPECT_TRUE(lab.until([&] {
    return lab.count(Counter::timeouts) + lab.count(Counter::abandoned) == kCalls;
  })) << "the clients of those are disconnected";
}

TEST_F(ManyCalls, whatever_ends_meanwhile_keeps_none_of_the_others_from_its_turn) {
  lab.pass(tcp_upstream::kCreditIntervalNs);
  lab.upstreams->poll(ForwardLab::clock());  // stops in the middle of the calls
  for (std::uint32_t i = 0; i < kCalls - 1; ++i) lab.upstream.send(0, record(echo(lab.upstream.calls[i])));
  ASSERT_TRUE(lab.until([&] { return unfinished() == 1; }));
  EXPECT_EQ(lab.count(Counter::timeouts), 0u);
  lab.pass(61 * kSecond);
  EXPECT_TRUE(lab.until([&] { return lab.count(Counter::timeouts) == 1; }));
}

}  // namespace
}  // namespace sluice::tcp_upstream_test
