// SPDX-License-Identifier: Apache-2.0
//
// Clients that reconnect and retransmit calls. Because of the duplicate request cache, non-idempotent calls
// are executed once.
#include "tests/unit/gateway/tcp_upstream/forward_repeat_lab.h"

namespace sluice::tcp_upstream_test::repeated {
namespace {

TEST_F(Repeat, V1_152_a_call_that_comes_again_after_its_reply_gets_that_again) {
  conformance::RawPeer& first = connect();
  send(first, mkdir(7));
  ASSERT_TRUE(has_come(1));
  answer(0, words({0, 0, 0, 0, 0}));
  ASSERT_TRUE(replied(first, 1));
  leave(first);
  conformance::RawPeer& second = connect();
  send(second, mkdir(7));
  ASSERT_TRUE(replied(second, 1));
  EXPECT_EQ(reply(second, 0), reply(first, 0));
  EXPECT_EQ(lab.upstream.calls.size(), 1u) << "executed once";
  EXPECT_EQ(lab.count(Counter::replayed), 1u);
}

TEST_F(Repeat, V1_152_a_call_that_comes_again_while_it_is_executed_gets_its_reply) {
  conformance::RawPeer& first = connect();
  send(first, mkdir(7));
  ASSERT_TRUE(has_come(1));
  leave(first);
  EXPECT_EQ(lab.count(Counter::orphans), 1u);
  conformance::RawPeer& second = connect();
  send(second, mkdir(7));
  EXPECT_TRUE(comes_no_more());
  EXPECT_TRUE(second.inbox.empty());
  answer(0, words({0, 0, 0, 0, 0}));
  ASSERT_TRUE(replied(second, 1));
  EXPECT_EQ(reply(second, 0), success(7, words({0, 0, 0, 0, 0})));
  EXPECT_EQ(lab.upstream.calls.size(), 1u);
}

TEST_F(Repeat, a_kept_reply_announces_no_more_than_can_be_carried) {
  enum : std::uint32_t { kCreate = 6, kGetAttr = 9, kPutRootFh = 24, kMaxRead = 1u << 30 };
  Bytes operations = words({kPutRootFh, kCreate, 2});
  append(operations, opaque(words({1})));
  append(operations, words({0, 0, kGetAttr, 1, kMaxRead}));
  const auto results = [](std::uint32_t size) {
    return words(
        {0, 0, 3, kPutRootFh, 0, kCreate, 0, 0, 0, 0, 0, 0, 0, kGetAttr, 0, 1, kMaxRead, 8, 0, size});
  };
  conformance::RawPeer& first = connect();
  send(first, compound(7, 0, operations, 3));
  ASSERT_TRUE(has_come(1));
  leave(first);
  EXPECT_EQ(lab.count(Counter::orphans), 1u);
  conformance::RawPeer& second = connect();
  send(second, compound(7, 0, operations, 3));
  EXPECT_TRUE(comes_no_more());
  answer(0, results(4u << 20));
  ASSERT_TRUE(replied(second, 1));
  EXPECT_EQ(reply(second, 0), success(7, results(1u << 20)));
  EXPECT_EQ(lab.upstream.calls.size(), 1u);
}

TEST_F(Repeat, V1_152_a_call_on_two_connections_that_live_is_executed_once_and_answered_on_both) {
  conformance::RawPeer& first = connect();
  conformance::RawPeer& second = connect();
  send(first, mkdir(7));
  ASSERT_TRUE(has_come(1));
  send(second, mkdir(7));
  EXPECT_TRUE(comes_no_more());
  EXPECT_EQ(lab.count(Counter::waits_earlier), 1u);
  answer(0, words({0, 0, 0, 0, 0}));
  ASSERT_TRUE(replied(first, 1));
  ASSERT_TRUE(replied(second, 1));
  EXPECT_EQ(reply(second, 0), reply(first, 0));
}

TEST_F(Repeat, another_client_waits_for_nothing) {
  ForwardLab two;
  std::vector<std::unique_ptr<conformance::RawPeer>> clients;
  clients.push_back(two.add_raw_peer());
  send(*clients[0], mkdir(7));
  ASSERT_TRUE(two.until([&] { return two.upstream.calls.size() == 1; }));
  clients[0]->owned_qp->to_error();
  ASSERT_TRUE(two.until([&] { return two.ends.size() == 1; }));
  clients.push_back(two.add_raw_peer());
  send(*clients[1], mkdir(7));
  EXPECT_TRUE(two.until([&] { return two.upstream.calls.size() == 2; })) << "the same call of somebody else";
  for (const auto& client : clients) client->owned_qp.reset();
}

TEST_F(Repeat, other_contents_or_other_xids_make_another_call) {
  conformance::RawPeer& peer = connect();
  send(peer, mkdir(7, 1));
  send(peer, mkdir(8, 1));
  ASSERT_TRUE(has_come(2));
  answer(0, words({0}));
  answer(1, words({17}));
  ASSERT_TRUE(replied(peer, 2));
  leave(peer);
  conformance::RawPeer& again = connect();
  send(again, mkdir(7, 2));
  ASSERT_TRUE(has_come(3)) << "the XID with other contents";
  answer(2, words({5}));
  ASSERT_TRUE(replied(again, 1));
  EXPECT_EQ(reply(again, 0), success(7, words({5})));
}

TEST_F(Repeat, what_changes_nothing_is_executed_each_time) {
  conformance::RawPeer& peer = connect();
  for (std::size_t i = 0; i < 3; ++i) {
    send(peer, getattr(7));
    ASSERT_TRUE(has_come(i + 1));
  }
  EXPECT_EQ(lab.count(Counter::waits_earlier), 0u);
}

TEST_F(Repeat, a_call_without_a_client_is_sent_again_when_its_connection_is_lost) {
  conformance::RawPeer& first = connect();
  send(first, mkdir(7));
  send(first, write_call(8, 1));
  ASSERT_TRUE(has_come(2));
  const auto sent = lab.upstream.calls;
  leave(first);
  lab.upstream.close(sent[0].connection);
  ASSERT_TRUE(has_come(3));
  EXPECT_EQ(lab.upstream.calls[2].message, sent[0].message) << "byte for byte";
  EXPECT_EQ(lab.upstream.peer_port(lab.upstream.calls[2].connection),
            lab.upstream.peer_port(sent[0].connection));
  EXPECT_TRUE(comes_no_more()) << "the WRITE cannot be executed any more";
  conformance::RawPeer& second = connect();
  send(second, mkdir(7));
  EXPECT_TRUE(comes_no_more());
  answer(2, words({0}));
  ASSERT_TRUE(replied(second, 1));
  send(second, write_call(8, 1));
  ASSERT_TRUE(has_come(4));
}

TEST_F(Repeat, a_read_that_nobody_waits_for_holds_up_nobody) {
  conformance::RawPeer& first = connect();
  send(first, getattr(7));
  ASSERT_TRUE(has_come(1));
  leave(first);
  conformance::RawPeer& second = connect();
  send(second, write_call(8, 2));
  EXPECT_TRUE(has_come(2));
  EXPECT_EQ(lab.count(Counter::orphans), 0u);
}

TEST_F(Repeat, version_4_0_has_its_compounds_that_change_something_known_and_4_1_has_sessions) {
  for (const std::uint32_t minor : {0u, 1u}) {
    lab.upstream.calls.clear();
    conformance::RawPeer& first = connect();
    send(first, create(20 + minor, minor));
    ASSERT_TRUE(has_come(1));
    answer(0, words({0, 0, 0}));
    ASSERT_TRUE(replied(first, 1));
    leave(first);
    conformance::RawPeer& second = connect();
    send(second, create(20 + minor, minor));
    if (minor == 0) {
      ASSERT_TRUE(replied(second, 1));
      EXPECT_EQ(lab.upstream.calls.size(), 1u);
    } else {
      EXPECT_TRUE(has_come(2));
    }
    leave(second);
  }
}

struct SmallCache : Repeat {
  SmallCache()
      : Repeat({.shared_connections = 1, .cache_entries = tcp_upstream::kCacheWays, .one_host = true}) {}
};

TEST_F(SmallCache, replies_that_were_repeated_make_room_again) {
  conformance::RawPeer& first = connect();
  for (std::uint32_t xid = 0; xid < tcp_upstream::kCacheWays; ++xid) {
    send(first, mkdir(100 + xid));
    ASSERT_TRUE(has_come(xid + 1));
    answer(xid, words({0}));
    ASSERT_TRUE(replied(first, xid + 1));
  }
  leave(first);
  conformance::RawPeer& second = connect();
  for (std::uint32_t xid = 0; xid < tcp_upstream::kCacheWays; ++xid) {
    send(second, mkdir(100 + xid));
    ASSERT_TRUE(replied(second, xid + 1));
  }
  EXPECT_EQ(lab.count(Counter::replayed), tcp_upstream::kCacheWays);
  send(second, mkdir(200));
  ASSERT_TRUE(has_come(tcp_upstream::kCacheWays + 1));
  EXPECT_EQ(lab.count(Counter::evicted_replies), 1u);
}

TEST_F(SmallCache, a_call_for_which_there_is_no_place_waits) {
  conformance::RawPeer& peer = connect();
  for (std::uint32_t xid = 0; xid < tcp_upstream::kCacheWays - 1; ++xid) {
    send(peer, write_call(100 + xid, 1));
    ASSERT_TRUE(has_come(xid + 1));
  }
  conformance::RawPeer& other = connect();
  send(other, write_call(300, 1));
  ASSERT_TRUE(has_come(tcp_upstream::kCacheWays));
  send(other, write_call(301, 1));
  EXPECT_TRUE(comes_no_more());
  answer(0, words({0}));
  EXPECT_TRUE(has_come(tcp_upstream::kCacheWays + 1));
}

TEST_F(Repeat, an_error_of_the_rpc_layer_is_not_kept) {
  conformance::RawPeer& first = connect();
  send(first, mkdir(7));
  ASSERT_TRUE(has_come(1));
  lab.upstream.send(lab.upstream.calls[0].connection,
                    record(words({lab.upstream.calls[0].xid(), 1, 0, 0, 0, 5})));
  ASSERT_TRUE(replied(first, 1));
  send(first, mkdir(7));
  EXPECT_TRUE(has_come(2));
}

TEST_F(Repeat, a_reply_too_long_to_be_kept_is_counted) {
  conformance::RawPeer& first = connect();
  send(first, with_xid(call_of(0x20000123, 1, 7, words({1})), 7));
  ASSERT_TRUE(has_come(1));
  answer(0, pattern(tcp_upstream::kKeptBytes, 3));
  ASSERT_TRUE(replied(first, 1));
  EXPECT_EQ(lab.count(Counter::unkept_replies), 1u);
}

/// Each non-idempotent call is on a separate connection, which its client closes without waiting.
TEST(RepeatBooks, a_client_that_closes_after_each_call_leaves_nothing_and_costs_nobody) {
  constexpr std::uint32_t kRounds = 1000;
  ForwardLab lab({.shared_connections = 2});
  LabClient& hasty = lab.add_client();
  LabClient& other = lab.add_client();
  for (std::uint32_t i = 0; i < kRounds; ++i) {
    lab.upstream.calls.clear();
    hasty.submit({.payload = mkdir(0, i), .max_reply_bytes = 64});
    ASSERT_TRUE(lab.until([&] { return lab.upstream.calls.size() == 1; })) << i;
    const auto asked = lab.upstream.calls[0];
    lab.disconnect(hasty);
    hasty.requester.cancel_all();
    lab.upstream.send(asked.connection, record(success(asked.xid(), words({0}))));
    lab.reconnect(hasty);
  }
  EXPECT_EQ(lab.count(Counter::calls), kRounds) << "each was executed once";
  EXPECT_EQ(lab.count(Counter::disconnects), 0u);
  EXPECT_EQ(lab.count(Counter::orphans), kRounds);
  EXPECT_EQ(lab.count(Counter::lost_orphans), 0u);
  lab.upstream.answer = [](const FakeUpstream::Call& call) { return success(call.xid(), words({0})); };
  EXPECT_EQ(lab.call(other, {.payload = mkdir(0), .max_reply_bytes = 64}).status, CallStatus::Ok);
  EXPECT_EQ(lab.call(hasty, {.payload = mkdir(0), .max_reply_bytes = 64}).status, CallStatus::Ok);
  EXPECT_TRUE(lab.until([&] {
    lab.pass(tcp_upstream::kCreditIntervalNs);
    return lab.area->outstanding.load() + lab.area->waiting.load() == 0;
  }));
}

}  // namespace
}  // namespace sluice::tcp_upstream_test::repeated
