// SPDX-License-Identifier: Apache-2.0
//
// A server whose address changes: its connections follow, and no call is lost.
#include "tests/unit/gateway/rdma_upstream/relay_lab.h"
#include "tests/unit/gateway/tcp_upstream/echoed_calls.h"

namespace sluice::rdma_upstream_test {
namespace {

using rpcrdma::CallStatus;
using tcp_upstream_test::echo;
using tcp_upstream_test::plain;

constexpr std::uint64_t kTickNs = rdma_upstream::kTickNs;

struct RelayAddress : testing::Test {
  RelayAddress() {
    lab.upstream().answer = echo;
    EXPECT_TRUE(answered(submit(1), 1));
    EXPECT_EQ(server(), 1);
  }
  std::size_t submit(std::uint32_t word) {
    return client.submit({.payload = plain(word), .max_reply_bytes = 64});
  }
  bool answered(std::size_t index, std::uint32_t word) {
    EXPECT_TRUE(lab.until([&] {
      lab.forward.pass(kTickNs);
      return client.finished[index].has_value();
    }));
    const Outcome& outcome = *client.finished[index];
    return outcome.status == CallStatus::Ok && word_at(outcome.message, 6) == word;
  }
  /// Returns the last byte of the address of the most recent connection.
  int server() const { return lab.side.servers.back().address.bytes.back(); }
  void wait(std::uint64_t ns) {
    for (std::uint64_t passed = 0; passed < ns; passed += kTickNs) {
      lab.forward.pass(kTickNs);
      lab.forward.turns(4);
    }
  }

  RelayLab lab;
  LabClient& client = lab.add_client();
};

TEST_F(RelayAddress, a_connection_without_calls_is_given_back_and_the_next_goes_there) {
  lab.side.set_address(2);
  wait(3 * kTickNs);
  EXPECT_EQ(lab.side.hung_up.size(), 1u);
  EXPECT_TRUE(answered(submit(2), 2));
  EXPECT_EQ(server(), 2);
  EXPECT_EQ(lab.count(Counter::address_changes), 1u);
  lab.side.set_address(2);
  EXPECT_TRUE(answered(submit(3), 3));
  EXPECT_EQ(lab.side.servers.size(), 2u) << "the same again changes nothing";
  lab.side.set_address(2, 7);
  wait(3 * kTickNs);
  EXPECT_TRUE(answered(submit(4), 4));
  EXPECT_EQ(lab.side.servers.back().port, 7);
}

TEST_F(RelayAddress, calls_that_are_outstanding_are_answered_and_others_go_there) {
  lab.upstream().answer = nullptr;
  const std::size_t first = submit(2);
  ASSERT_TRUE(lab.until([&] { return lab.upstream().calls.size() == 2; }));
  lab.side.set_address(2);
  wait(3 * kTickNs);
  const std::size_t second = submit(3);
  wait(10 * kTickNs);
  EXPECT_EQ(lab.upstream().calls.size(), 2u) << "it waits";
  EXPECT_EQ(lab.side.servers.size(), 1u);
  lab.upstream().send(lab.upstream().calls[1].connection,
                      tcp_upstream_test::record(echo(lab.upstream().calls[1])));
  lab.upstream().answer = echo;
  EXPECT_TRUE(answered(first, 2));
  EXPECT_TRUE(answered(second, 3));
  EXPECT_EQ(server(), 2);
  EXPECT_EQ(lab.upstream().calls.size(), 3u) << "each was sent once";
}

TEST_F(RelayAddress, calls_that_are_not_answered_in_time_go_again_there) {
  lab.upstream().answer = nullptr;
  const std::size_t call = submit(2);
  ASSERT_TRUE(lab.until([&] { return lab.upstream().calls.size() == 2; }));
  lab.side.set_address(2);
  wait(rdma_server::kMoveNs / 2);
  EXPECT_TRUE(lab.side.hung_up.empty());
  lab.upstream().answer = echo;
  wait(rdma_server::kMoveNs);
  EXPECT_TRUE(answered(call, 2));
  EXPECT_EQ(server(), 2);
  EXPECT_EQ(client.connection->state(), rpcrdma::Connection::State::Open) << "it has noticed nothing";
  EXPECT_TRUE(lab.until([&] {
    lab.forward.pass(kTickNs);
    return lab.balanced();
  }));
  EXPECT_TRUE(answered(submit(3), 3));
  EXPECT_EQ(lab.side.servers.size(), 2u);
}

// --- A spare slot that is not assigned to an upstream yet

TEST(SpareRelay, serves_nobody_before_it_is_an_upstream_and_its_clients_from_then_on) {
  RelayLab lab({.spare = true});
  lab.upstream().answer = echo;
  LabClient& client = lab.add_client();
  const auto call = [&](std::uint32_t word) {
    return lab.call(client, {.payload = plain(word), .max_reply_bytes = 64});
  };
  constexpr std::uint32_t kProgUnavail = 1;
  EXPECT_EQ(word_at(call(1).message, 5), kProgUnavail);
  EXPECT_TRUE(lab.side.servers.empty());
  gateway::UpstreamSlot& place = lab.side.slots->slot(0);
  place.offer(lab.side.settings);
  EXPECT_FALSE(place.settled());
  ASSERT_TRUE(lab.until([&] { return place.settled(); }));
  const Outcome outcome = call(2);
  EXPECT_EQ(word_at(outcome.message, 5), 0u);
  EXPECT_EQ(word_at(outcome.message, 6), 2u);
  EXPECT_EQ(lab.side.servers.size(), 1u);
  lab.upstream().answer = nullptr;
  const std::size_t before = lab.upstream().calls.size();
  constexpr std::size_t kMore = 5;
  for (std::size_t i = 0; i < kMore; ++i) client.submit({.payload = plain(3), .max_reply_bytes = 64});
  EXPECT_TRUE(lab.until([&] { return lab.upstream().calls.size() == before + kMore; }))
      << "it has more than one credit";
}

// --- A slot that another upstream gets. Its address is that of the first one.

struct ReplacedRelay : testing::Test {
  ReplacedRelay() { lab.upstream().answer = echo; }
  std::size_t submit(std::uint32_t word) {
    return client.submit({.payload = plain(word), .max_reply_bytes = 64});
  }
  std::uint32_t accept_stat() {
    return word_at(lab.call(client, {.payload = plain(1), .max_reply_bytes = 64}).message, 5);
  }
  gateway::UpstreamSlot& slot() { return lab.side.slots->slot(0); }
  bool settles() {
    return static_cast<bool>(lab.until([&] {
      lab.forward.pass(kTickNs);
      return slot().settled();
    }));
  }

  static constexpr std::uint32_t kProgUnavail = 1;
  RelayLab lab;
  LabClient& client = lab.add_client();
  gateway::UpstreamSettings settings = lab.side.settings;
};

TEST_F(ReplacedRelay, one_without_calls_leaves_at_once_and_its_connection_closes) {
  EXPECT_EQ(accept_stat(), 0u);
  settings.name = "newcomer";
  slot().offer(settings);
  ASSERT_TRUE(settles());
  EXPECT_EQ(lab.side.hung_up.size(), 1u);
  EXPECT_EQ(lab.count(Counter::calls), 0u) << "the counters are another's";
  EXPECT_TRUE(lab.side.relay->in_use());
  settings.name = "server";
  slot().offer(settings);
  ASSERT_TRUE(settles());
  EXPECT_EQ(accept_stat(), 0u) << "the client has stayed";
  slot().offer({});
  ASSERT_TRUE(settles());
  EXPECT_FALSE(lab.side.relay->in_use());
  EXPECT_EQ(accept_stat(), kProgUnavail);
  EXPECT_TRUE(lab.balanced());
}

TEST_F(ReplacedRelay, calls_of_the_former_one_are_answered_by_it) {
  EXPECT_EQ(accept_stat(), 0u);
  lab.upstream().answer = nullptr;
  const std::size_t before = lab.upstream().calls.size();
  const std::size_t call = submit(7);
  ASSERT_TRUE(lab.until([&] { return lab.upstream().calls.size() > before; }));
  settings.name = "newcomer";
  slot().offer(settings);
  lab.forward.turns(100);
  EXPECT_FALSE(slot().settled());
  lab.upstream().send(lab.upstream().calls.back().connection,
                      tcp_upstream_test::record(echo(lab.upstream().calls.back())));
  ASSERT_TRUE(settles());
  ASSERT_TRUE(client.finished[call].has_value());
  EXPECT_EQ(word_at(client.finished[call]->message, 6), 7u);
  EXPECT_EQ(client.connection->state(), rpcrdma::Connection::State::Open);
}

TEST_F(ReplacedRelay, clients_of_calls_that_are_not_answered_in_time_are_disconnected) {
  EXPECT_EQ(accept_stat(), 0u);
  LabClient& other = lab.add_client();
  lab.upstream().answer = nullptr;
  const std::size_t before = lab.upstream().calls.size();
  submit(7);
  ASSERT_TRUE(lab.until([&] { return lab.upstream().calls.size() > before; }));
  slot().offer({});
  lab.forward.turns(100);
  EXPECT_FALSE(slot().settled());
  lab.forward.pass(gateway::kLeaveNs);
  ASSERT_TRUE(settles());
  ASSERT_TRUE(lab.until([&] { return client.connection->state() == rpcrdma::Connection::State::Closed; }));
  EXPECT_EQ(other.connection->state(), rpcrdma::Connection::State::Open) << "nobody else is";
  EXPECT_TRUE(lab.balanced());
}

}  // namespace
}  // namespace sluice::rdma_upstream_test
