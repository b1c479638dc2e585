// SPDX-License-Identifier: Apache-2.0
//
// Clients that reconnect and retransmit calls. Non-idempotent calls are executed once, and no call overtakes
// an earlier one of its client.
#include <algorithm>

#include "tests/conformance/raw_call.h"
#include "tests/unit/gateway/tcp_upstream/forward_lab.h"

namespace sluice::tcp_upstream_test {
namespace {

using Counter = segment::UpstreamCounter;

constexpr std::uint64_t kSecond = 1'000'000'000;

Bytes with_xid(Bytes call, std::uint32_t xid) {
  xdr::store_u32(call.data(), xid);
  return call;
}
Bytes mkdir(std::uint32_t xid, std::uint32_t name = 1) {
  Bytes arguments = opaque(pattern(32, 5));
  append(arguments, opaque(words({name})));
  append(arguments, words({0, 0, 0, 0, 0, 0}));
  return with_xid(nfs3(ulb::kNfs3MkDir, arguments), xid);
}
Bytes write_call(std::uint32_t xid, std::uint32_t word) {
  Bytes arguments = opaque(pattern(32, 5));
  append(arguments, words({0, 0, 4, 2}));
  append(arguments, opaque(words({word})));
  return with_xid(nfs3(ulb::kNfs3Write, arguments), xid);
}
Bytes getattr(std::uint32_t xid) {
  return with_xid(nfs3(ulb::kNfs3GetAttr, opaque(pattern(32, 5))), xid);
}
/// Returns a COMPOUND of version 4, such as PUTROOTFH and CREATE of a directory.
Bytes compound(std::uint32_t xid, std::uint32_t minor, const Bytes& operations, std::uint32_t count) {
  Bytes arguments = words({0, minor, count});
  append(arguments, operations);
  return with_xid(call_of(ulb::kNfsProgram, 4, ulb::kNfs4Compound, arguments), xid);
}
Bytes create(std::uint32_t xid, std::uint32_t minor) {
  Bytes operations = words({24, 6, 2});
  append(operations, opaque(words({1})));
  append(operations, words({0, 0}));
  return compound(xid, minor, operations, 2);
}

/// Connections of one client, controlled by hand. The upstream does not answer by itself.
struct Repeat : testing::Test {
  explicit Repeat(ForwardOptions options = {.shared_connections = 2, .one_host = true})
      : lab(std::move(options)) {}
  ~Repeat() override {
    for (const auto& peer : peers) peer->owned_qp.reset();
  }

  conformance::RawPeer& connect() {
    peers.push_back(lab.add_raw_peer());
    return *peers.back();
  }
  static void send(conformance::RawPeer& peer, const Bytes& call) {
    peer.send(conformance::RawCall{.xid = word_at(call, 0)}.with(call));
  }
  /// Disconnects the client's side and waits until the gateway detects it.
  void leave(conformance::RawPeer& peer) {
    const std::size_t before = lab.ends.size();
    peer.owned_qp->to_error();
    ASSERT_TRUE(lab.until([&] { return lab.ends.size() == before + 1; }));
  }
  bool has_come(std::size_t calls) {
    return bool{lab.until([&] {
      lab.pass(kSecond / 10'000);
      return lab.upstream.calls.size() >= calls;
    })};
  }
  bool comes_no_more() {
    const std::size_t before = lab.upstream.calls.size();
    for (int i = 0; i < 20; ++i) {
      lab.pass(tcp_upstream::kTickNs);
      lab.turns(10);
    }
    return lab.upstream.calls.size() == before;
  }
  void answer(std::size_t call, const Bytes& results) {
    const auto& asked = lab.upstream.calls[call];
    lab.upstream.send(asked.connection, record(success(asked.xid(), results)));
  }
  bool replied(conformance::RawPeer& peer, std::size_t count) {
    return bool{lab.until([&] {
      lab.pass(kSecond / 10'000);
      return peer.inbox.size() >= count;
    })};
  }
  static Bytes reply(const conformance::RawPeer& peer, std::size_t number) {
    const auto& bytes = peer.inbox[number].bytes;
    return Bytes(bytes.begin() + 28, bytes.end());
  }

  ForwardLab lab;
  std::vector<std::unique_ptr<conformance::RawPeer>> peers;
};

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

TEST_F(Repeat, a_client_that_comes_back_waits_until_its_old_write_is_done) {
  conformance::RawPeer& first = connect();
  send(first, write_call(7, 1));
  ASSERT_TRUE(has_come(1));
  leave(first);
  conformance::RawPeer& second = connect();
  send(second, write_call(8, 2));
  EXPECT_TRUE(comes_no_more()) << "the old data would win";
  answer(0, words({0}));
  ASSERT_TRUE(has_come(2));
  answer(1, words({0}));
  ASSERT_TRUE(replied(second, 1));
}

TEST_F(Repeat, a_write_that_comes_again_on_another_connection_waits_for_the_first) {
  conformance::RawPeer& first = connect();
  conformance::RawPeer& second = connect();
  send(first, write_call(7, 1));
  ASSERT_TRUE(has_come(1));
  send(second, write_call(7, 1));
  EXPECT_TRUE(comes_no_more());
  answer(0, words({0}));
  ASSERT_TRUE(has_come(2)) << "it may be done twice";
  answer(1, words({0}));
  ASSERT_TRUE(replied(second, 1));
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

/// Passes time in which the upstream sends data on the connection of its first call and answers no call.
void let_time_pass(ForwardLab& lab, std::size_t connection, std::uint64_t seconds) {
  for (std::uint64_t i = 0; i < seconds; ++i) {
    lab.pass(kSecond);
    if (lab.upstream.open(connection)) lab.upstream.send(connection, record(success(1)));
    lab.turns(10);
  }
}

TEST_F(Repeat, what_an_upstream_does_not_answer_holds_up_its_repetition_alone_after_a_while) {
  conformance::RawPeer& first = connect();
  send(first, mkdir(7));
  ASSERT_TRUE(has_come(1));
  const std::size_t connection = lab.upstream.calls[0].connection;
  leave(first);
  conformance::RawPeer& second = connect();
  send(second, getattr(9));
  let_time_pass(lab, connection, tcp_upstream::kEarlierNs / kSecond - 2);
  EXPECT_EQ(lab.upstream.calls.size(), 1u);
  let_time_pass(lab, connection, 4);
  ASSERT_TRUE(has_come(2));
  answer(1, words({70}));
  ASSERT_TRUE(replied(second, 1));
  let_time_pass(lab, connection, 2 * gateway::kRetransmitNs / kSecond);
  EXPECT_EQ(lab.upstream.calls.size(), 2u) << "nobody waits for it";
  leave(second);
  conformance::RawPeer& third = connect();
  send(third, mkdir(7));
  let_time_pass(lab, connection, 1);
  EXPECT_TRUE(lab.upstream.open(connection));
  answer(0, words({0}));
  EXPECT_TRUE(replied(third, 1));
}

/// A server drops a call that is already in progress, and an answer on a lost connection is lost.
TEST_F(Repeat, what_an_upstream_has_forgotten_is_sent_again_to_it_when_its_client_asks_again) {
  conformance::RawPeer& first = connect();
  send(first, mkdir(7));
  ASSERT_TRUE(has_come(1));
  const auto sent = lab.upstream.calls[0];
  leave(first);
  conformance::RawPeer& second = connect();
  send(second, mkdir(7));
  let_time_pass(lab, sent.connection, gateway::kRetransmitNs / kSecond - 2);
  EXPECT_EQ(lab.upstream.calls.size(), 1u) << "it may be executed still";
  for (std::size_t times = 2; times < 5; ++times) {
    let_time_pass(lab, sent.connection, times == 2 ? 4 : gateway::kRetransmitNs / kSecond);
    ASSERT_EQ(lab.upstream.calls.size(), times);
    EXPECT_EQ(lab.upstream.calls.back().message, sent.message) << "byte for byte";
    EXPECT_EQ(lab.upstream.calls.back().connection, sent.connection);
  }
  EXPECT_EQ(lab.count(Counter::resent), 3u);
  EXPECT_EQ(lab.count(Counter::disconnects), 0u);
  answer(2, words({0, 0, 0, 0, 0}));
  ASSERT_TRUE(replied(second, 1));
  const std::uint64_t unmatched = lab.count(Counter::unmatched_replies);
  answer(3, words({17}));
  EXPECT_TRUE(comes_no_more());
  EXPECT_EQ(second.inbox.size(), 1u);
  EXPECT_EQ(lab.count(Counter::unmatched_replies), unmatched + 1);
}

TEST_F(Repeat, an_upstream_that_answers_nothing_has_forgotten_nothing) {
  conformance::RawPeer& first = connect();
  send(first, mkdir(7));
  ASSERT_TRUE(has_come(1));
  leave(first);
  conformance::RawPeer& second = connect();
  send(second, mkdir(7));
  for (std::uint64_t i = 0; i < tcp_upstream::kSilenceNs / kSecond; ++i) {
    lab.pass(kSecond);
    lab.turns(10);
  }
  EXPECT_EQ(lab.count(Counter::resent), 0u);
}

/// RFC 7530, section 3.1.1: a retransmission must not use the same connection.
TEST_F(Repeat, a_forgotten_call_of_version_4_0_is_sent_again_on_the_next_connection_of_the_same_port) {
  conformance::RawPeer& first = connect();
  send(first, create(7, 0));
  ASSERT_TRUE(has_come(1));
  const auto sent = lab.upstream.calls[0];
  const auto port = lab.upstream.peer_port(sent.connection);
  leave(first);
  conformance::RawPeer& second = connect();
  send(second, create(7, 0));
  let_time_pass(lab, sent.connection, gateway::kRetransmitNs / kSecond + 2);
  ASSERT_TRUE(has_come(2));
  EXPECT_FALSE(lab.upstream.open(sent.connection));
  EXPECT_EQ(lab.upstream.calls[1].message, sent.message);
  EXPECT_EQ(lab.upstream.peer_port(lab.upstream.calls[1].connection), port);
  answer(1, words({0, 0, 0}));
  EXPECT_TRUE(replied(second, 1));
}

TEST_F(Repeat, a_write_that_an_upstream_does_not_answer_ends_with_its_connection) {
  conformance::RawPeer& first = connect();
  send(first, write_call(7, 1));
  ASSERT_TRUE(has_come(1));
  const std::size_t connection = lab.upstream.calls[0].connection;
  leave(first);
  conformance::RawPeer& second = connect();
  send(second, write_call(8, 2));
  let_time_pass(lab, connection, tcp_upstream::kEarlierNs / kSecond - 2);
  EXPECT_TRUE(lab.upstream.open(connection));
  EXPECT_EQ(lab.upstream.calls.size(), 1u);
  let_time_pass(lab, connection, 4);
  ASSERT_TRUE(has_come(2));
  EXPECT_FALSE(lab.upstream.open(connection));
  EXPECT_NE(lab.upstream.calls[1].message, lab.upstream.calls[0].message);
}

/// Returns PUTFH and WRITE of version 4.0.
Bytes write_4_0(std::uint32_t xid, std::uint32_t word) {
  Bytes operations = words({22});
  append(operations, opaque(pattern(28, 1)));
  append(operations, words({38, 1, 2, 3, 4, 0, 0, 2}));
  append(operations, opaque(words({word})));
  return compound(xid, 0, operations, 2);
}
/// Returns PUTFH and SETATTR of version 4.0, with attributes of this size.
Bytes set_attributes_4_0(std::uint32_t xid, std::size_t bytes) {
  Bytes operations = words({22});
  append(operations, opaque(pattern(28, 1)));
  append(operations, words({34, 1, 2, 3, 4, 1, 1u << 12}));
  append(operations, opaque(pattern(bytes, 2)));
  return compound(xid, 0, operations, 2);
}

TEST_F(Repeat, no_write_of_version_4_0_overtakes_one_that_the_upstream_has_read) {
  conformance::RawPeer& first = connect();
  send(first, write_4_0(7, 1));
  ASSERT_TRUE(has_come(1));
  leave(first);
  conformance::RawPeer& second = connect();
  send(second, write_4_0(8, 2));
  EXPECT_TRUE(comes_no_more());
  answer(0, words({0, 0, 0}));
  EXPECT_TRUE(has_come(2));
}

TEST_F(Repeat, a_write_of_version_4_0_that_is_never_answered_delays_the_next_one_for_a_limited_time) {
  conformance::RawPeer& first = connect();
  send(first, write_4_0(7, 1));
  ASSERT_TRUE(has_come(1));
  const std::size_t connection = lab.upstream.calls[0].connection;
  leave(first);
  conformance::RawPeer& second = connect();
  send(second, write_4_0(8, 2));
  let_time_pass(lab, connection, tcp_upstream::kEarlierNs / kSecond + 2);
  ASSERT_TRUE(has_come(2));
  EXPECT_FALSE(lab.upstream.open(connection));
}

TEST_F(Repeat, a_call_of_version_4_0_that_is_too_long_to_be_kept_is_executed_once) {
  conformance::RawPeer& first = connect();
  send(first, set_attributes_4_0(7, tcp_upstream::kKeptBytes + 1000));
  ASSERT_TRUE(has_come(1));
  leave(first);
  conformance::RawPeer& second = connect();
  send(second, set_attributes_4_0(7, tcp_upstream::kKeptBytes + 1000));
  EXPECT_TRUE(comes_no_more());
  answer(0, words({0, 0, 0}));
  EXPECT_TRUE(replied(second, 1));
  EXPECT_EQ(lab.upstream.calls.size(), 1u);
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

TEST_F(Repeat, a_connection_of_a_4_0_client_stays_until_its_call_is_answered) {
  conformance::RawPeer& first = connect();
  send(first, create(7, 0));
  ASSERT_TRUE(has_come(1));
  const std::size_t own = lab.upstream.calls[0].connection;
  leave(first);
  lab.turns(50);
  EXPECT_TRUE(lab.upstream.open(own));
  conformance::RawPeer& second = connect();
  send(second, create(7, 0));
  EXPECT_TRUE(comes_no_more());
  answer(0, words({0, 0, 0}));
  ASSERT_TRUE(replied(second, 1));
  EXPECT_EQ(lab.upstream.calls.size(), 1u);
  EXPECT_TRUE(lab.until([&] {
    lab.pass(tcp_upstream::kTickNs);
    return !lab.upstream.open(own);
  }));
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

std::size_t answered(const LabClient& client) {
  return static_cast<std::size_t>(std::count_if(client.finished.begin(), client.finished.end(),
                                                [](const auto& outcome) { return outcome.has_value(); }));
}

/// The data is partially sent to the upstream when the client disconnects. It then reconnects and writes
/// other data.
TEST(RepeatHalfSent, a_write_waits_for_an_earlier_one_whose_client_has_gone_while_it_was_sent) {
  constexpr std::uint32_t kLongBytes = 1u << 20;
  ForwardLab lab({.credits = 32, .record_buffers = 32, .shared_connections = 2, .one_host = true});
  LabClient& leaves = lab.add_client();
  LabClient& returns = lab.add_client();
  lab.upstream.answer = [](const FakeUpstream::Call& call) { return success(call.xid(), words({0})); };
  lab.call(leaves, {.payload = getattr(0), .max_reply_bytes = 64});  // its credits are granted
  lab.upstream.answer = nullptr;
  const std::uint32_t first_xid = lab.upstream.calls[0].xid() + 1;
  lab.upstream.calls.clear();
  lab.upstream.reads = false;
  const std::uint64_t sent_before = lab.count(Counter::sent_bytes);
  const LongWrite write(leaves, kLongBytes);
  // Long messages use the connections alternately. A call with a long reply before each WRITE leaves the
  // second connection for the WRITEs.
  for (int i = 0; i < 7; ++i) {
    leaves.submit({.payload = getattr(0), .max_reply_bytes = 100'000});
    leaves.submit(write.request());
    lab.turns(100);
  }
  // The WRITEs that the connection has accepted completely are answered, so the remaining ones are sent in
  // part or not at all.
  const auto whole = static_cast<std::uint32_t>((lab.count(Counter::sent_bytes) - sent_before) / kLongBytes);
  ASSERT_LT(whole, 7u);
  const std::size_t connection = 1;
  for (std::uint32_t i = 0; i < whole; ++i)
    lab.upstream.send(connection, record(success(first_xid + 2 * i + 1, words({0}))));
  ASSERT_TRUE(lab.until([&] { return answered(leaves) == whole + 1; }));
  lab.disconnect(leaves);
  returns.submit({.payload = write_call(0, 2), .max_reply_bytes = 64});
  lab.turns(500);

  lab.upstream.reads = true;
  const auto writes = [&](bool of_the_old) {
    std::vector<std::uint32_t> xids;
    for (const FakeUpstream::Call& call : lab.upstream.calls)
      if (word_at(call.message, 5) == ulb::kNfs3Write && (call.message.size() >= kLongBytes) == of_the_old)
        xids.push_back(call.xid());
    return xids;
  };
  ASSERT_TRUE(lab.until([&] { return !writes(true).empty(); }));
  for (int i = 0; i < 20; ++i) {
    lab.pass(tcp_upstream::kTickNs);
    lab.turns(20);
  }
  EXPECT_TRUE(writes(false).empty()) << "the old data would win";
  const auto asked = writes(true);
  for (std::size_t i = whole; i < asked.size(); ++i)
    lab.upstream.send(connection, record(success(asked[i], words({0}))));
  EXPECT_TRUE(lab.until([&] {
    lab.pass(tcp_upstream::kTickNs / 20);
    return writes(false).size() == 1;
  }));
}

}  // namespace
}  // namespace sluice::tcp_upstream_test
