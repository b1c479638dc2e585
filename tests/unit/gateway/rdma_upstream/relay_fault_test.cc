// SPDX-License-Identifier: Apache-2.0
//
// A relay whose server, client or connection fails, or whose resources are exhausted.
#include "tests/unit/gateway/rdma_upstream/relay_lab.h"
#include "tests/unit/gateway/tcp_upstream/echoed_calls.h"

namespace sluice::rdma_upstream_test {
namespace {

using rpcrdma::CallStatus;
using tcp_upstream_test::call_of;
using tcp_upstream_test::echo;
using tcp_upstream_test::LongWrite;
using tcp_upstream_test::plain;
using tcp_upstream_test::success;

std::size_t submit(LabClient& client, std::uint32_t word) {
  return client.submit({.payload = plain(word), .max_reply_bytes = 64});
}
bool answered(const LabClient& client, std::size_t index, std::uint32_t word) {
  const auto& outcome = client.finished[index];
  return outcome && outcome->status == CallStatus::Ok && word_at(outcome->message, 6) == word;
}
/// Closes a connection of the relay as if the server had closed it.
void lose(RelayLab& lab, std::size_t connection) {
  lab.side.connections[connection]->close(rpcrdma::CloseReason::PeerClosed);
}

TEST(RelayFault, a_call_whose_connection_is_lost_goes_again_with_its_xid) {
  RelayLab lab;
  LabClient& client = lab.add_client();
  const std::size_t call = submit(client, 7);
  ASSERT_TRUE(lab.until([&] { return lab.upstream().calls.size() == 1; }));
  lose(lab, 0);
  lab.upstream().answer = echo;
  ASSERT_TRUE(lab.until([&] { return client.finished[call].has_value(); }));
  EXPECT_TRUE(answered(client, call, 7));
  EXPECT_EQ(client.connection->state(), rpcrdma::Connection::State::Open) << "it has noticed nothing";
  EXPECT_EQ(lab.side.connections.size(), 2u);
}

TEST(RelayFault, V1_175_a_signed_call_does_not_go_again_and_its_client_is_disconnected) {
  RelayLab lab;
  LabClient& client = lab.add_client();
  Bytes call = words({0, 0, 2, 0x20000123, 1, 7, 6, 20, 1, 0, 5, 1, 0, 0, 0, 1});
  const std::size_t index = client.submit({.payload = call, .max_reply_bytes = 64});
  ASSERT_TRUE(lab.until([&] { return lab.upstream().calls.size() == 1; }));
  lose(lab, 0);
  ASSERT_TRUE(lab.until([&] { return lab.side.accepted[0]->state() != rpcrdma::Connection::State::Open; }));
  EXPECT_FALSE(client.finished[index].has_value()) << "no error was made up";
  EXPECT_EQ(lab.count(Counter::given_up), 1u);
  EXPECT_TRUE(lab.until([&] { return lab.balanced(); }));
}

TEST(RelayFault, a_client_that_goes_takes_nothing_with_it) {
  RelayLab lab({.connections = 1, .calls = 8});
  LabClient& first = lab.add_client();
  LabClient& second = lab.add_client();
  lab.upstream().answer = echo;
  lab.call(first, {.payload = plain(1), .max_reply_bytes = 64});  // both connections get credits
  lab.upstream().answer = nullptr;
  lab.upstream().calls.clear();
  const LongWrite write(first, 300'000);
  first.submit(write.request());
  for (std::uint32_t i = 0; i < 20; ++i) submit(first, i);
  ASSERT_TRUE(lab.until([&] { return lab.upstream().calls.size() >= 4; }));
  const std::size_t waits = submit(second, 9);
  first.disconnect();
  lab.upstream().answer = echo;
  ASSERT_TRUE(lab.until([&] { return second.finished[waits].has_value(); }));
  EXPECT_TRUE(answered(second, waits, 9));
  EXPECT_TRUE(lab.until([&] { return lab.balanced(); }));
  EXPECT_EQ(lab.side.connections.size(), 2u) << "none for what the first one had not sent yet";
}

TEST(RelayFault, a_server_that_answers_others_is_not_silent) {
  RelayLab lab;
  LabClient& client = lab.add_client();
  lab.upstream().answer = echo;
  lab.call(client, {.payload = plain(1), .max_reply_bytes = 64});
  constexpr std::uint32_t kNever = 1000;
  lab.upstream().answer = [](const auto& call) {
    return word_at(call.message, 10) == kNever ? Bytes{} : echo(call);
  };
  submit(client, kNever);
  for (std::uint32_t i = 0; i < 60; ++i) {
    lab.forward.pass(2'000'000'000);
    ASSERT_EQ(lab.call(client, {.payload = plain(i), .max_reply_bytes = 64}).status, CallStatus::Ok);
  }
  EXPECT_EQ(lab.count(Counter::probes), 0u);
  EXPECT_EQ(lab.count(Counter::silent_resets), 0u);
}

TEST(RelayFault, clients_share_fewer_connections_than_they_are) {
  RelayLab lab({.connections = 2});
  for (int i = 0; i < 4; ++i) lab.add_client();
  lab.upstream().answer = echo;
  for (std::uint32_t round = 0; round < 3; ++round) {
    std::vector<std::size_t> calls;
    for (const auto& client : lab.clients) calls.push_back(submit(*client, round));
    ASSERT_TRUE(lab.until([&] {
      lab.forward.pass(20'000'000);
      for (std::size_t i = 0; i < calls.size(); ++i)
        if (!lab.clients[i]->finished[calls[i]]) return false;
      return true;
    }));
    for (std::size_t i = 0; i < calls.size(); ++i) EXPECT_TRUE(answered(*lab.clients[i], calls[i], round));
  }
  EXPECT_GT(lab.count(Counter::connections_taken), 0u);
}

TEST(RelayFault, a_silent_server_is_asked_and_its_connection_made_again) {
  RelayLab lab;
  LabClient& client = lab.add_client();
  lab.upstream().answer = echo;
  ASSERT_TRUE(lab.call(client, {.payload = plain(1), .max_reply_bytes = 64}).status == CallStatus::Ok);
  lab.upstream().answer = nullptr;  // not even NULL
  const std::size_t call = submit(client, 7);
  ASSERT_TRUE(lab.until([&] {
    lab.forward.pass(1'000'000'000);
    return lab.count(Counter::silent_resets) > 0;
  }));
  EXPECT_GT(lab.count(Counter::probes), 0u);
  lab.upstream().answer = echo;
  ASSERT_TRUE(lab.until([&] { return client.finished[call].has_value(); }));
  EXPECT_TRUE(answered(client, call, 7));
}

TEST(RelayFault, calls_wait_until_the_servers_name_is_resolved) {
  RelayLab lab({.knows_address = false});
  LabClient& client = lab.add_client();
  lab.upstream().answer = echo;
  const std::size_t call = submit(client, 7);
  ASSERT_TRUE(lab.until([&] { return lab.count(Counter::connect_failures) > 0; }));
  EXPECT_FALSE(client.finished[call].has_value());
  EXPECT_TRUE(lab.until([&] { return lab.side.area->connecting.load() == 1; })) << "it is unreachable";
  lab.side.set_address();
  ASSERT_TRUE(lab.until([&] {
    lab.forward.pass(20'000'000);
    return client.finished[call].has_value();
  }));
  EXPECT_TRUE(answered(client, call, 7));
  EXPECT_TRUE(lab.until([&] { return lab.side.area->connecting.load() == 0; }));
}

TEST(RelayFault, memory_for_one_long_call_at_a_time_is_enough) {
  RelayLab lab({.record_buffers = 2, .item_buffers = 1});
  LabClient& client = lab.add_client();
  lab.upstream().answer = [](const auto& call) { return success(call.xid(), Bytes(30'000)); };
  std::vector<std::size_t> calls;
  for (std::uint32_t i = 0; i < 12; ++i)
    calls.push_back(client.submit({.payload = plain(i), .max_reply_bytes = 40'000}));
  ASSERT_TRUE(lab.until([&] {
    for (const std::size_t call : calls)
      if (!client.finished[call]) return false;
    return true;
  }));
  for (const std::size_t call : calls) EXPECT_EQ(client.finished[call]->status, CallStatus::Ok);
  EXPECT_TRUE(lab.until([&] { return lab.balanced(); }));
}

TEST(RelayFault, a_call_that_is_answered_too_late_ends_its_client_where_that_is_configured) {
  RelayLab lab({.call_timeout_ns = 5'000'000'000});
  LabClient& client = lab.add_client();
  const std::size_t call = submit(client, 7);
  ASSERT_TRUE(lab.until([&] { return lab.upstream().calls.size() == 1; }));
  lab.forward.pass(6'000'000'000);
  ASSERT_TRUE(lab.until([&] { return lab.side.accepted[0]->state() != rpcrdma::Connection::State::Open; }));
  EXPECT_FALSE(client.finished[call].has_value());
  EXPECT_EQ(lab.count(Counter::timeouts), 1u);
}

TEST(RelayFault, a_time_limit_that_a_reload_sets_ends_calls_that_are_made_from_then_on) {
  RelayLab lab;
  LabClient& client = lab.add_client();
  gateway::UpstreamSlot& slot = lab.side.slots->slot(0);
  gateway::UpstreamSettings settings = slot.offered();
  settings.call_timeout_ns = 5'000'000'000;
  slot.offer(settings);
  ASSERT_TRUE(lab.until([&] { return slot.settled(); }));
  submit(client, 7);
  ASSERT_TRUE(lab.until([&] { return lab.upstream().calls.size() == 1; }));
  lab.forward.pass(6'000'000'000);
  ASSERT_TRUE(lab.until([&] { return lab.side.accepted[0]->state() != rpcrdma::Connection::State::Open; }));
  EXPECT_EQ(lab.count(Counter::timeouts), 1u);
}

TEST(RelayFault, surplus_connections_are_returned_when_a_reload_lowers_their_number) {
  RelayLab lab({.connections = 3});
  lab.upstream().answer = tcp_upstream_test::echo;
  std::vector<LabClient*> clients;
  const auto call_all = [&] {
    for (LabClient* const client : clients) {
      const std::size_t call = submit(*client, 5);
      EXPECT_TRUE(lab.until([&] {
        lab.forward.pass(rdma_upstream::kTickNs);
        return client->finished[call].has_value();
      }));
    }
  };
  for (int i = 0; i < 3; ++i) clients.push_back(&lab.add_client());
  call_all();
  EXPECT_EQ(lab.side.relay->server().connections().connected(), 3u);
  gateway::UpstreamSlot& slot = lab.side.slots->slot(0);
  gateway::UpstreamSettings settings = slot.offered();
  for (const std::uint32_t connections : {1u, 64u}) {
    settings.connections = connections;
    slot.offer(settings);
    ASSERT_TRUE(lab.until([&] { return slot.settled(); }));
    const std::uint32_t expected = connections == 1 ? 1 : 3;
    if (connections != 1) call_all();
    EXPECT_TRUE(lab.until([&] {
      lab.forward.pass(rdma_server::kTurnNs / 4);
      return lab.side.relay->server().connections().connected() == expected;
    })) << connections;
    call_all();
    if (connections == 1) EXPECT_LE(lab.side.relay->server().connections().connected(), 1u);
  }
}

/// Makes calls that are answered with 100,000 bytes, for which the transport has one buffer.
std::vector<std::size_t> long_replies(RelayLab& lab, LabClient& client, std::size_t count) {
  lab.upstream().answer = [](const auto& call) { return success(call.xid(), Bytes(100'000)); };
  std::vector<std::size_t> calls;
  for (std::uint32_t i = 0; i < count; ++i)
    calls.push_back(client.submit({.payload = plain(i), .max_reply_bytes = 110'000}));
  return calls;
}

TEST(RelayFault, replies_wait_for_room_and_all_come) {
  RelayLab lab({.reply_buffers = 1});
  LabClient& client = lab.add_client();
  const auto calls = long_replies(lab, client, 8);
  for (const std::size_t call : calls)
    ASSERT_TRUE(lab.until([&] { return client.finished[call].has_value(); }));
  for (const std::size_t call : calls) {
    EXPECT_EQ(client.finished[call]->status, CallStatus::Ok);
    EXPECT_EQ(client.finished[call]->message.size(), tcp_upstream_test::kResultsAt + 100'000);
  }
}

TEST(RelayFault, a_client_that_goes_while_replies_wait_for_room) {
  RelayLab lab({.reply_buffers = 1});
  LabClient& client = lab.add_client();
  LabClient& other = lab.add_client();
  long_replies(lab, client, 8);
  ASSERT_TRUE(lab.until([&] { return lab.count(Counter::replies) >= 3; }));
  client.disconnect();
  EXPECT_TRUE(lab.until([&] { return lab.balanced(); }));
  const auto calls = long_replies(lab, other, 2);
  for (const std::size_t call : calls)
    ASSERT_TRUE(lab.until([&] { return other.finished[call].has_value(); }));
}

/// Sends a call of the server on the connection of the client's last call.
void call_back(RelayLab& lab, std::uint32_t xid, std::uint32_t procedure) {
  lab.upstream().send(
      lab.upstream().calls.back().connection,
      tcp_upstream_test::record(conformance::rpc_call(xid, conformance::kTestProgram, 1, procedure)));
}

struct Known {
  explicit Known(RelayLab& lab) : client(lab.add_client()) {
    lab.upstream().answer = [](const auto& call) {
      return word_at(call.message, 1) == 0 ? success(call.xid(), words({0, 0, 0})) : Bytes{};
    };
    compound(lab);
  }
  void compound(RelayLab& lab) {
    lab.call(client, {.payload = call_of(ulb::kNfsProgram, 4, ulb::kNfs4Compound, words({0, 1, 0})),
                      .max_reply_bytes = 64});
  }
  LabClient& client;
};

TEST(RelayFault, V1_200_more_calls_of_the_server_one_after_the_other_than_there_may_be_at_once) {
  RelayLab lab;
  const Known known(lab);
  for (std::uint32_t i = 0; i < rdma_server::kMaxServerCalls + 5; ++i) {
    const std::size_t before = lab.upstream().calls.size();
    call_back(lab, 5000 + i, conformance::TestService::kNull);
    ASSERT_TRUE(lab.until([&] { return lab.upstream().calls.size() > before; }));
    ASSERT_EQ(lab.upstream().calls.back().message, success(5000 + i)) << i;
  }
  EXPECT_EQ(lab.count(Counter::callbacks_refused), 0u);
}

TEST(RelayFault, a_connection_on_which_the_server_waits_for_an_answer_is_not_taken) {
  RelayLab lab({.connections = 1});
  const Known known(lab);
  call_back(lab, 77, conformance::TestService::kLater);
  ASSERT_TRUE(lab.until([&] { return known.client.reverse.held() == 1; }));
  LabClient& other = lab.add_client();
  const std::size_t waits = submit(other, 9);
  lab.upstream().answer = echo;
  for (int i = 0; i < 100; ++i) {
    lab.forward.pass(50'000'000);
    lab.forward.turns(20);
  }
  EXPECT_FALSE(other.finished[waits].has_value());
  EXPECT_EQ(lab.count(Counter::connections_taken), 0u);
  known.client.reverse.complete_later();
  ASSERT_TRUE(lab.until([&] {
    lab.forward.pass(20'000'000);
    return other.finished[waits].has_value();
  }));
  EXPECT_TRUE(answered(other, waits, 9));
}

}  // namespace
}  // namespace sluice::rdma_upstream_test
