// SPDX-License-Identifier: Apache-2.0
//
// Upstreams that misbehave, close connections or stay silent, and clients that disconnect: answers and
// counters.
#include "tests/unit/gateway/tcp_upstream/echoed_calls.h"

#include <algorithm>

namespace sluice::tcp_upstream_test {
namespace {

using Counter = segment::UpstreamCounter;

TEST(ForwardFault, calls_of_a_connection_that_is_lost_are_sent_again_with_their_xids) {
  ForwardLab lab({.shared_connections = 1});
  LabClient& client = warmed_client(lab);
  for (std::uint32_t i = 0; i < 5; ++i) client.submit({.payload = plain(i), .max_reply_bytes = 64});
  ASSERT_TRUE(lab.until([&] { return lab.upstream.calls.size() == 5; }));
  const auto first = lab.upstream.calls;
  lab.upstream.calls.clear();
  lab.upstream.close(first[0].connection);
  lab.upstream.answer = echo;
  ASSERT_TRUE(lab.until([&] { return client.finished.back().has_value(); }));
  ASSERT_EQ(lab.upstream.calls.size(), 5u);
  for (std::size_t i = 0; i < 5; ++i) EXPECT_EQ(lab.upstream.calls[i].message, first[i].message);
  for (std::uint32_t i = 0; i < 5; ++i) EXPECT_EQ(word_at(client.finished[i]->message, 6), i);
  EXPECT_EQ(lab.count(Counter::resent), 5u);
  EXPECT_EQ(lab.count(Counter::disconnects), 1u);
}

TEST(ForwardFault, an_upstream_that_is_away_gets_the_calls_when_it_is_back) {
  ForwardLab lab({.shared_connections = 1});
  LabClient& client = warmed_client(lab);
  lab.upstream.shut();
  lab.upstream.close(0);
  lab.turns();
  const std::size_t waiting = client.submit({.payload = plain(3), .max_reply_bytes = 64});
  ASSERT_TRUE(lab.until([&] { return lab.count(Counter::connect_failures) > 0; }));
  EXPECT_FALSE(client.finished[waiting].has_value());
  lab.upstream.answer = echo;
  lab.upstream.reopen();
  ASSERT_TRUE(lab.until([&] {
    lab.pass(kSecond / 1000);
    return client.finished[waiting].has_value();
  }));
  EXPECT_EQ(word_at(client.finished[waiting]->message, 6), 3u);
}

TEST(ForwardFault, a_connection_that_ends_in_the_middle_of_a_record_loses_no_call) {
  for (const std::size_t sent : {2u, 6u, 20u, 100u, 50'000u}) {
    ForwardLab lab({.shared_connections = 1});
    LabClient& client = warmed_client(lab);
    client.submit({.payload = plain(), .max_reply_bytes = 100'000});
    ASSERT_TRUE(lab.until([&] { return lab.upstream.calls.size() == 1; }));
    const Bytes reply = record(success(lab.upstream.calls[0].xid(), pattern(60'000, 1)));
    lab.upstream.send(0, std::span(reply).first(sent));
    lab.turns(50);
    lab.upstream.close(0);
    lab.upstream.answer = echo;
    ASSERT_TRUE(lab.until([&] { return client.finished[0].has_value(); })) << sent;
    EXPECT_EQ(client.finished[0]->status, CallStatus::Ok);
    EXPECT_EQ(client.finished[0]->message.size(), kResultsAt + 4);
  }
}

TEST(ForwardFault, a_lie_about_a_records_length_costs_the_connection_and_no_call) {
  ForwardLab lab({.shared_connections = 1});
  LabClient& client = warmed_client(lab);
  for (const std::uint32_t mark : {0xffffffffu, 0x7fffffffu}) {
    const std::uint64_t before = lab.count(Counter::bad_records);
    lab.upstream.answer = nullptr;
    const std::size_t index = client.submit({.payload = plain(), .max_reply_bytes = 64});
    const std::size_t calls = lab.upstream.calls.size();
    ASSERT_TRUE(lab.until([&] { return lab.upstream.calls.size() > calls; }));
    lab.upstream.send(lab.upstream.calls.back().connection, words({mark, 1, 2, 3}));
    lab.upstream.answer = echo;
    ASSERT_TRUE(lab.until([&] { return client.finished[index].has_value(); }));
    EXPECT_EQ(lab.count(Counter::bad_records), before + 1);
  }
  // The record is shorter than any message.
  lab.upstream.send(lab.upstream.calls.back().connection, record(words({1, 1})));
  ASSERT_TRUE(lab.until([&] { return lab.count(Counter::bad_records) == 3; }));
  EXPECT_EQ(lab.call(client, {.payload = plain(), .max_reply_bytes = 64}).status, CallStatus::Ok);
}

TEST(ForwardFault, a_reply_longer_than_any_can_be_costs_its_own_call_alone) {
  ForwardLab lab({.shared_connections = 1});
  LabClient& greedy = warmed_client(lab);
  LabClient& other = warmed_client(lab);
  other.submit({.payload = plain(5), .max_reply_bytes = 64});
  ASSERT_TRUE(lab.until([&] { return lab.upstream.calls.size() == 1; }));
  greedy.submit({.payload = plain(), .max_reply_bytes = 64});
  ASSERT_TRUE(lab.until([&] { return lab.upstream.calls.size() == 2; }));
  lab.upstream.send(0, record(success(lab.upstream.calls[1].xid(), Bytes(tcp::kMaxRecordBytes + 4))));
  lab.upstream.send(0, record(echo(lab.upstream.calls[0])));
  ASSERT_TRUE(lab.until([&] { return other.finished[0].has_value() && greedy.finished[0].has_value(); }));
  EXPECT_EQ(greedy.finished[0]->status, CallStatus::ChunkError);
  EXPECT_EQ(word_at(other.finished[0]->message, 6), 5u);
  EXPECT_EQ(lab.count(Counter::long_records), 1u);
  EXPECT_EQ(lab.count(Counter::disconnects), 0u);
}

TEST(ForwardFault, a_call_that_ends_every_connection_ends_its_clients_and_nobody_elses) {
  ForwardLab lab({.shared_connections = 1});
  LabClient& client = warmed_client(lab);
  constexpr std::uint32_t kPoison = 666;
  std::size_t lost = 0;
  // Another client continues to call; its replies show that the upstream is alive.
  LabClient& other = warmed_client(lab);
  lab.upstream.calls.clear();
  for (std::uint32_t i = 0; i < 8; ++i)
    client.submit({.payload = plain(i == 3 ? kPoison : i), .max_reply_bytes = 64});
  ASSERT_TRUE(lab.until([&] { return lab.upstream.calls.size() == 8; }));
  lab.upstream.close(lab.upstream.calls[0].connection);
  lab.upstream.answer = [&](const auto& call) {
    if (word_at(call.message, 10) != kPoison) return echo(call);
    ++lost;
    lab.upstream.close(call.connection);
    return Bytes{};
  };
  ASSERT_TRUE(lab.until([&] {
    lab.pass(kSecond / 1000);
    if (other.finished.empty() || other.finished.back())
      other.submit({.payload = plain(9), .max_reply_bytes = 64});
    return !lab.ends.empty();
  }));
  EXPECT_EQ(lab.ends, std::vector{rpcrdma::CloseReason::Unanswerable});
  for (std::uint32_t i = 0; i < 8; ++i) {
    EXPECT_EQ(client.finished[i].has_value(), i != 3) << i;
    if (i != 3) {
      EXPECT_EQ(word_at(client.finished[i]->message, 6), i);
    }
  }
  EXPECT_GE(lost, tcp_upstream::kMaxFailures);
  EXPECT_EQ(lab.count(Counter::given_up), 1u);
  ASSERT_TRUE(lab.until([&] { return other.finished.back().has_value(); }));
  for (const auto& outcome : other.finished) EXPECT_EQ(word_at(outcome->message, 6), 9u);
  // The client connects again, and the call closes connections of that client only.
  const std::size_t shared = lab.upstream.calls.back().connection;
  lab.reconnect(client);
  const std::size_t lost_before = lost;
  ASSERT_TRUE(lab.until([&] {
    lab.pass(kSecond / 100);
    if (other.finished.back()) other.submit({.payload = plain(9), .max_reply_bytes = 64});
    return lost >= lost_before + 5;
  }));
  EXPECT_TRUE(lab.upstream.open(shared));
  ASSERT_TRUE(lab.until([&] { return other.finished.back().has_value(); }));
  lab.disconnect(client);
  // All calls may be outstanding concurrently again.
  lab.upstream.answer = nullptr;
  lab.upstream.calls.clear();
  for (std::uint32_t i = 0; i < 8; ++i) other.submit({.payload = plain(i), .max_reply_bytes = 64});
  ASSERT_TRUE(lab.until([&] { return lab.upstream.calls.size() == 8; }));
}

TEST(ForwardFault, a_call_that_takes_long_holds_up_no_other_after_a_loss) {
  ForwardLab lab({.shared_connections = 1});
  LabClient& client = warmed_client(lab);
  LabClient& other = warmed_client(lab);
  lab.upstream.calls.clear();
  constexpr std::uint32_t kLong = 7;
  const std::size_t takes_long = client.submit({.payload = plain(kLong), .max_reply_bytes = 64});
  ASSERT_TRUE(lab.until([&] { return lab.upstream.calls.size() == 1; }));
  for (std::uint32_t i = 0; i < 3; ++i) client.submit({.payload = plain(i), .max_reply_bytes = 64});
  ASSERT_TRUE(lab.until([&] { return lab.upstream.calls.size() == 4; }));
  lab.upstream.answer = [&](const auto& call) {
    return word_at(call.message, 10) == kLong ? Bytes{} : echo(call);
  };
  lab.upstream.close(lab.upstream.calls[0].connection);
  ASSERT_TRUE(lab.until([&] { return lab.upstream.calls.size() == 5; }));
  lab.turns(50);
  EXPECT_EQ(lab.upstream.calls.size(), 5u) << "it may be what ended the connection";
  lab.pass(tcp_upstream::kProbeBatchNs);
  ASSERT_TRUE(lab.until([&] {
    lab.pass(kSecond / 100);
    return client.finished.back().has_value();
  }));
  EXPECT_EQ(word_at(lab.call(other, {.payload = plain(9), .max_reply_bytes = 64}).message, 6), 9u);
  EXPECT_FALSE(client.finished[takes_long].has_value());
  EXPECT_EQ(lab.count(Counter::disconnects), 1u);
}

TEST(ForwardFault, the_more_calls_take_long_the_more_go_out_at_once_after_a_loss) {
  ForwardLab lab({.shared_connections = 1});
  LabClient& client = warmed_client(lab);
  constexpr std::uint32_t kLong = 7;
  for (std::uint32_t i = 0; i < 14; ++i) client.submit({.payload = plain(kLong), .max_reply_bytes = 64});
  const std::size_t last = client.submit({.payload = plain(9), .max_reply_bytes = 64});
  ASSERT_TRUE(lab.until([&] { return lab.upstream.calls.size() == 15; }));
  lab.upstream.answer = [&](const auto& call) {
    return word_at(call.message, 10) == kLong ? Bytes{} : echo(call);
  };
  lab.upstream.close(lab.upstream.calls[0].connection);
  ASSERT_TRUE(lab.until([&] { return lab.upstream.calls.size() == 16; }));
  for (const std::size_t sent : {3u, 7u, 15u}) {
    lab.turns(50);
    EXPECT_FALSE(client.finished[last].has_value());
    lab.pass(tcp_upstream::kProbeBatchNs);
    EXPECT_TRUE(lab.until([&] { return lab.upstream.calls.size() == 15 + sent; }));
  }
  EXPECT_TRUE(lab.until([&] { return client.finished[last].has_value(); }));
}

TEST(ForwardFault, one_that_ends_connections_is_found_among_calls_that_take_long) {
  ForwardLab lab({.shared_connections = 1});
  LabClient& slow = warmed_client(lab);
  LabClient& client = warmed_client(lab);
  lab.upstream.calls.clear();
  constexpr std::uint32_t kLong = 7;
  constexpr std::uint32_t kPoison = 666;
  for (std::uint32_t i = 0; i < 12; ++i) slow.submit({.payload = plain(kLong), .max_reply_bytes = 64});
  client.submit({.payload = plain(kPoison), .max_reply_bytes = 64});
  ASSERT_TRUE(lab.until([&] { return lab.upstream.calls.size() == 13; }));
  lab.upstream.answer = [&](const auto& call) {
    const std::uint32_t word = word_at(call.message, 10);
    if (word == kPoison) lab.upstream.close(call.connection);
    return word == kLong || word == kPoison ? Bytes{} : echo(call);
  };
  lab.upstream.close(lab.upstream.calls[0].connection);
  LabClient& other = lab.add_client();
  ASSERT_TRUE(lab.until([&] {
    lab.pass(kSecond / 100);
    if (other.finished.empty() || other.finished.back())
      other.submit({.payload = plain(9), .max_reply_bytes = 64});
    return !lab.ends.empty();
  }));
  EXPECT_EQ(lab.count(Counter::given_up), 1u);
  ASSERT_TRUE(lab.until([&] {
    lab.pass(kSecond / 100);
    return other.finished.back().has_value();
  }));
  EXPECT_EQ(lab.ends.size(), 1u) << "only that of the client";
}

TEST(ForwardFault, an_upstream_that_ends_all_connections_for_a_while_costs_no_call) {
  ForwardLab lab({.shared_connections = 1});
  LabClient& client = warmed_client(lab);
  std::size_t ended = 0;
  lab.upstream.answer = [&](const auto& call) {
    if (++ended > 12) return echo(call);
    lab.upstream.close(call.connection);
    return Bytes{};
  };
  for (std::uint32_t i = 0; i < 5; ++i) client.submit({.payload = plain(i), .max_reply_bytes = 64});
  ASSERT_TRUE(lab.until([&] {
    lab.pass(kSecond / 100);
    return all_finished(client);
  }));
  for (std::uint32_t i = 0; i < 5; ++i) EXPECT_EQ(word_at(client.finished[i]->message, 6), i);
  EXPECT_EQ(lab.count(Counter::given_up), 0u);
}

TEST(ForwardFault, replies_that_no_call_waits_for_go_to_nobody) {
  ForwardLab lab({.shared_connections = 2});
  LabClient& client = warmed_client(lab);
  LabClient& other = warmed_client(lab);
  client.submit({.payload = plain(1), .max_reply_bytes = 64});
  other.submit({.payload = empty_compound(), .max_reply_bytes = 64});
  ASSERT_TRUE(lab.until([&] { return lab.upstream.calls.size() == 2; }));
  const auto calls = lab.upstream.calls;
  // Unused XIDs, the other client's XID on the wrong connection, and a record that is not a reply.
  for (std::uint32_t i = 0; i < 200; ++i)
    lab.upstream.send(calls[0].connection, record(success(calls[0].xid() + 1 + i * 7919)));
  lab.upstream.send(calls[0].connection, record(success(calls[1].xid(), words({66}))));
  lab.upstream.send(calls[1].connection, record(success(calls[0].xid(), words({66}))));
  lab.upstream.send(calls[0].connection, record(words({calls[0].xid(), 2, 0, 0, 0, 0})));
  ASSERT_TRUE(lab.until([&] { return lab.count(Counter::unmatched_replies) >= 202; }));
  lab.turns();
  EXPECT_FALSE(client.finished[0].has_value());
  EXPECT_FALSE(other.finished[0].has_value());
  EXPECT_EQ(lab.count(Counter::bad_records), 1u);
  for (const auto& call : calls) {
    lab.upstream.send(call.connection,
                      record(success(call.xid(), words({call.connection == calls[0].connection}))));
    lab.upstream.send(call.connection, record(success(call.xid(), words({77}))));  // a duplicate
  }
  ASSERT_TRUE(lab.until([&] { return client.finished[0].has_value() && other.finished[0].has_value(); }));
  EXPECT_EQ(word_at(client.finished[0]->message, 6), 1u);
  EXPECT_EQ(word_at(other.finished[0]->message, 6), 0u);
  lab.turns(50);
  EXPECT_EQ(lab.count(Counter::unmatched_replies), 204u);
}

TEST(ForwardFault, garbage_for_the_body_of_a_reply_goes_to_its_client_alone) {
  ForwardLab lab;
  LabClient& client = warmed_client(lab);
  const Bytes garbage[] = {words({0, 0, 0, 0, 0xffffffff}), words({9, 9, 9, 9, 9, 9}),
                           words({0, 0, 0xffffffff, 1, 2, 3}), pattern(5000, 3)};
  for (const Bytes& body : garbage) {
    lab.upstream.answer = [&](const auto& call) {
      Bytes reply = words({call.xid(), 1});
      append(reply, body);
      return reply;
    };
    const Outcome outcome = lab.call(
        client,
        {.payload = call_of(ulb::kNfsProgram, 3, ulb::kNfs3Read, words({0})), .max_reply_bytes = 8000});
    EXPECT_EQ(outcome.status, CallStatus::Ok);
    EXPECT_EQ(outcome.message.size(), 8 + xdr::padded(body.size()));
  }
}

TEST(ForwardFault, an_upstream_that_takes_no_bytes_stops_nobody_else) {
  ForwardLab lab({.credits = 32, .shared_connections = 1, .call_timeout_ns = 100 * kSecond});
  LabClient& client = warmed_client(lab);
  LabClient& other = warmed_client(lab);
  lab.upstream.reads = false;
  const LongWrite write(client, 1u << 20);
  for (int i = 0; i < 7; ++i) client.submit(write.request());
  lab.turns(500);
  EXPECT_EQ(lab.call(other, {.payload = call_of(77, 1, 0), .max_reply_bytes = 64}).status, CallStatus::Ok);
  // The client disconnects while its calls are partially sent; then the connection times out.
  lab.disconnect(client);
  lab.pass(101 * kSecond);
  ASSERT_TRUE(lab.until([&] { return lab.count(Counter::disconnects) > 0; }));
  lab.upstream.reads = true;
  lab.upstream.answer = echo;
  EXPECT_EQ(lab.call(other, {.payload = plain(), .max_reply_bytes = 64}).status, CallStatus::Ok);
  EXPECT_EQ(lab.engine->call_memory().available(), lab.engine->config().call_buffers);
}

TEST(ForwardFault, a_client_that_has_gone_waits_for_no_upstream_that_takes_no_bytes) {
  ForwardLab lab({.credits = 32, .shared_connections = 1, .call_timeout_ns = 0});
  LabClient& client = warmed_client(lab);
  lab.upstream.reads = false;
  const LongWrite write(client, 1u << 20);
  for (int i = 0; i < 7; ++i) client.submit(write.request());
  lab.turns(500);
  lab.disconnect(client);
  lab.pass(tcp_upstream::kAbandonedNs / 2);
  lab.turns(500);
  EXPECT_EQ(lab.count(Counter::disconnects), 0u);
  EXPECT_FALSE(lab.engine->all_closed());
  lab.pass(tcp_upstream::kAbandonedNs / 2 + kSecond);
  EXPECT_TRUE(lab.until([&] { return lab.engine->all_closed(); }));
  EXPECT_EQ(lab.engine->call_memory().available(), lab.engine->config().call_buffers);
  EXPECT_EQ(lab.count(Counter::timeouts), 0u);
}

TEST(ForwardFault, clients_that_go_away_get_nothing_and_leave_nothing) {
  ForwardLab lab({.shared_connections = 1});
  for (int round = 0; round < 6; ++round) {
    LabClient& client = warmed_client(lab);
    LabClient& stays = warmed_client(lab);
    for (std::uint32_t i = 0; i < 6; ++i) {
      client.submit({.payload = plain(i), .max_reply_bytes = 64});
      client.submit({.payload = empty_compound(), .max_reply_bytes = 64});
    }
    stays.submit({.payload = plain(9), .max_reply_bytes = 64});
    ASSERT_TRUE(lab.until([&] { return lab.upstream.calls.size() == 13; }));
    const auto calls = lab.upstream.calls;
    lab.disconnect(client);
    lab.turns(20);
    for (const auto& call : calls)
      if (lab.upstream.open(call.connection)) lab.upstream.send(call.connection, record(echo(call)));
    ASSERT_TRUE(lab.until([&] { return stays.finished[0].has_value(); }));
    EXPECT_EQ(word_at(stays.finished[0]->message, 6), 9u);
    lab.disconnect(stays);
    lab.upstream.calls.clear();
  }
  EXPECT_EQ(lab.count(Counter::abandoned), 6u * 12);
  EXPECT_TRUE(lab.until([&] {
    lab.pass(tcp_upstream::kCreditIntervalNs);
    return lab.area->outstanding.load() + lab.area->waiting.load() == 0;
  }));
}

TEST(ForwardFault, a_reply_that_comes_before_its_call_is_sent_waits_for_the_end_of_that) {
  ForwardLab lab({.shared_connections = 1});
  LabClient& client = warmed_client(lab);
  const LongWrite write(client, 1u << 20);
  // One call reveals the next XID. The upstream has received only part of the first of two calls when it
  // answers the second.
  lab.upstream.answer = [](const auto& seen) { return success(seen.xid(), words({0})); };
  ASSERT_EQ(lab.call(client, write.request()).status, CallStatus::Ok);
  const std::uint32_t last_xid = lab.upstream.calls.back().xid();
  lab.upstream.reads = false;
  for (int i = 0; i < 8; ++i) client.submit(write.request());
  lab.turns(500);
  std::size_t early = 0;
  for (std::uint32_t next = 1; next <= 16; ++next, ++early)
    lab.upstream.send(0, record(success(last_xid + next, words({0}))));
  lab.turns(500);
  lab.upstream.reads = true;
  ASSERT_TRUE(lab.until([&] { return client.finished.back().has_value(); }));
  for (const auto& outcome : client.finished) EXPECT_EQ(outcome->status, CallStatus::Ok);
  EXPECT_GT(early, lab.count(Counter::unmatched_replies));
}

TEST(ForwardFault, a_privileged_port_is_used_where_it_is_wanted) {
  ForwardLab lab({.privileged_port = true});
  LabClient& client = warmed_client(lab);
  lab.upstream.answer = echo;
  lab.call(client, {.payload = empty_compound(), .max_reply_bytes = 64});
  for (std::size_t i = 0; i < lab.upstream.connections(); ++i) EXPECT_LT(lab.upstream.peer_port(i), 1024);
}

}  // namespace
}  // namespace sluice::tcp_upstream_test
