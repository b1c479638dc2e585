// SPDX-License-Identifier: Apache-2.0
//
// Calls that wait for a free XID, and the events that free one.
#include "tests/unit/gateway/tcp_upstream/echoed_calls.h"

namespace sluice::tcp_upstream_test {
namespace {

using Counter = segment::UpstreamCounter;

void submit(LabClient& client, std::uint32_t calls, std::uint32_t word) {
  for (std::uint32_t i = 0; i < calls; ++i) client.submit({.payload = plain(word), .max_reply_bytes = 64});
}

/// Sixteen numbers for eight clients: each has one, and eight are lent.
constexpr std::uint32_t kNumbers = 16;
constexpr std::uint32_t kMost = kNumbers / 2;

struct Numbers : testing::Test {
  ForwardLab lab{{.shared_connections = 1, .max_calls = kNumbers}};
  bool has_come(std::size_t calls) {
    return bool{lab.until([&] { return lab.upstream.calls.size() == calls; })};
  }
  std::uint32_t word_of(std::size_t call) { return word_at(lab.upstream.calls[call].message, 10); }
  void answer(std::size_t call) { lab.upstream.send(0, record(echo(lab.upstream.calls[call]))); }
};

TEST_F(Numbers, clients_whose_calls_hang_leave_each_other_client_some) {
  LabClient& first = warmed_client(lab);
  LabClient& second = warmed_client(lab);
  LabClient& victim = warmed_client(lab);
  lab.upstream.calls.clear();
  submit(first, lab.options.credits, 1);
  ASSERT_TRUE(has_come(kMost)) << "one client has half of all";
  submit(second, lab.options.credits, 2);
  ASSERT_TRUE(has_come(kMost + 2)) << "what is left of those that are lent, and its own";
  EXPECT_EQ(lab.count(Counter::waits_number), 2 * lab.options.credits - kMost - 2);
  for (std::size_t round = 0; round < 3; ++round) {
    submit(victim, 1, 3);
    ASSERT_TRUE(has_come(kMost + 3 + round));
    answer(kMost + 2 + round);
    ASSERT_TRUE(lab.until([&] { return all_finished(victim); }));
  }
  lab.upstream.answer = echo;
  for (std::size_t i = 0; i < kMost + 2; ++i) answer(i);
  EXPECT_TRUE(lab.until([&] { return all_finished(first) && all_finished(second); }));
}

TEST_F(Numbers, clients_that_wait_for_them_are_served_in_turn) {
  LabClient& first = warmed_client(lab);
  LabClient& second = warmed_client(lab);
  lab.upstream.calls.clear();
  submit(first, lab.options.credits, 1);
  ASSERT_TRUE(has_come(kMost));
  submit(second, lab.options.credits, 2);
  ASSERT_TRUE(has_come(kMost + 2));
  for (std::size_t i = 0; i < 6; ++i) answer(i);
  ASSERT_TRUE(has_come(kMost + 8));
  for (std::size_t i = 0; i < 6; ++i)
    EXPECT_EQ(word_of(kMost + 2 + i), i % 2 == 0 ? 2u : 1u) << "though the first has waited longer " << i;
}

TEST_F(Numbers, who_waits_for_a_connection_of_its_own_stops_nobody_else) {
  LabClient& other = warmed_client(lab);
  LabClient& comes_and_goes = lab.add_client();
  lab.upstream.answer = [](const auto& call) { return success(call.xid(), words({0, 0, 0})); };
  const Bytes compound = call_of(ulb::kNfsProgram, 4, ulb::kNfs4Compound, words({0, 1, 0}));
  lab.stop_clock();  // closed connections are not reused yet
  const auto calls = [&] { return comes_and_goes.submit({.payload = compound, .max_reply_bytes = 64}); };
  std::size_t rounds = 0;
  while (lab.count(Counter::waits_number) == 0) {
    ASSERT_LT(++rounds, 100u);
    const std::size_t index = calls();
    ASSERT_TRUE(lab.until(
        [&] { return comes_and_goes.finished[index].has_value() || lab.count(Counter::waits_number) > 0; }));
    if (lab.count(Counter::waits_number) > 0) break;
    lab.disconnect(comes_and_goes);
    lab.turns(20);
    lab.reconnect(comes_and_goes);
  }
  lab.upstream.answer = echo;
  EXPECT_EQ(word_at(lab.call(other, {.payload = plain(5), .max_reply_bytes = 64}).message, 6), 5u);
  EXPECT_FALSE(comes_and_goes.finished.back().has_value());
  lab.upstream.answer = [](const auto& call) { return success(call.xid(), words({0, 0, 0})); };
  lab.start_clock();
  lab.pass(tcp_upstream::kTickNs);
  EXPECT_TRUE(lab.until([&] { return comes_and_goes.finished.back().has_value(); }));
}

TEST_F(Numbers, calls_of_a_client_that_leaves_give_up_their_places) {
  LabClient& leaves = warmed_client(lab);
  LabClient& stays = warmed_client(lab);
  lab.upstream.calls.clear();
  submit(leaves, kMost + 2, 1);
  ASSERT_TRUE(lab.until([&] { return lab.count(Counter::waits_number) == 2; }));
  submit(stays, 3, 9);
  ASSERT_TRUE(lab.until([&] { return lab.count(Counter::waits_number) == 3; }));
  ASSERT_EQ(lab.upstream.calls.size(), kMost + 2);
  lab.disconnect(leaves);
  ASSERT_TRUE(has_come(kMost + 3));
  EXPECT_EQ(word_of(kMost + 2), 9u) << "nothing is sent for the client that disconnected";
  EXPECT_EQ(lab.count(Counter::abandoned), kMost + 2u);
  for (std::size_t i = kMost; i < kMost + 3; ++i) answer(i);
  ASSERT_TRUE(lab.until([&] { return all_finished(stays); }));
  // Everything that the client held is released, and no call waits.
  submit(stays, kMost, 5);
  EXPECT_TRUE(has_come(2 * kMost + 3u));
  EXPECT_TRUE(lab.until([&] {
    lab.pass(tcp_upstream::kCreditIntervalNs);
    return lab.area->waiting.load() == 0;
  }));
}

TEST(ForwardQueue, a_reply_that_waits_for_memory_has_freed_its_number) {
  ForwardLab lab({.record_buffers = 32, .reply_buffers = 1, .shared_connections = 1, .max_calls = kNumbers});
  LabClient& client = warmed_client(lab);
  rpcrdma::SharedMemory::Account other;
  std::byte* const taken = lab.engine->reply_memory().acquire(other, 1);
  ASSERT_NE(taken, nullptr);
  lab.upstream.answer = [](const auto& call) {
    const std::uint32_t word = word_at(call.message, 10);
    return word == 9 ? echo(call) : success(call.xid(), pattern(100'000, word));
  };
  for (std::uint32_t i = 0; i < kMost; ++i) client.submit({.payload = plain(i), .max_reply_bytes = 1u << 20});
  ASSERT_TRUE(lab.until([&] { return lab.engine->counters().waits_reply_memory == kMost; }));
  EXPECT_EQ(lab.count(Counter::replies), kMost + 1u);
  EXPECT_EQ(word_at(lab.call(client, {.payload = plain(9), .max_reply_bytes = 64}).message, 6), 9u);
  for (std::uint32_t i = 0; i < kMost; ++i) EXPECT_FALSE(client.finished[i].has_value());
  lab.engine->reply_memory().release(taken);
  ASSERT_TRUE(lab.until([&] { return all_finished(client); }));
}

// --- Memory of replies

/// Returns a READ with room for `bytes` bytes in a Write chunk.
Bytes read_of(std::uint32_t bytes) {
  Bytes arguments = opaque(pattern(32, 5));
  append(arguments, words({0, 0, bytes}));
  return nfs3(ulb::kNfs3Read, arguments);
}
/// Returns a reply with as many bytes as the call requests.
Bytes read_reply(const FakeUpstream::Call& call) {
  const std::uint32_t bytes = word_at(call.message, 10 + 9 + 2);
  Bytes results = words({0, 0, bytes, 1});
  append(results, opaque(pattern(bytes, bytes)));
  return success(call.xid(), results);
}
struct Read {
  Read(LabClient& reader, std::uint32_t bytes)
      : client(reader), into(client.memory(bytes)), piece(client.piece(into)), item{.pieces = {&piece, 1}} {
    index = client.submit({.payload = read_of(bytes), .writes = {&item, 1}, .max_reply_bytes = 200}, {bytes});
  }
  bool back() const { return client.finished[index].has_value(); }
  bool good() const {
    return back() && client.finished[index]->status == CallStatus::Ok &&
           conformance::has_pattern(into, static_cast<std::uint32_t>(into.size()));
  }
  LabClient& client;
  std::span<std::byte> into;
  rdma::Sge piece;
  rpcrdma::WriteItem item;
  std::size_t index = 0;
};

TEST(ForwardQueue, reads_of_four_mebibytes_wait_for_one_another_and_all_come) {
  constexpr std::uint32_t kBytes = 4u << 20;
  ForwardLab lab({.record_buffers = 1, .max_io_bytes = kBytes, .shared_connections = 1});
  LabClient& client = warmed_client(lab);
  LabClient& other = warmed_client(lab);
  lab.upstream.answer = read_reply;
  std::deque<Read> reads;
  for (std::uint32_t i = 0; i < 3; ++i) reads.emplace_back(client, kBytes);
  reads.emplace_back(other, kBytes);
  EXPECT_TRUE(
      lab.until([&] { return std::all_of(reads.begin(), reads.end(), [](auto& r) { return r.good(); }); }));
  EXPECT_GT(lab.count(Counter::waits_memory), 0u);
  EXPECT_EQ(lab.upstreams->held_bytes(0), 0u);
}

/// Two long buffers and two short ones for each of eight clients.
struct Memory : testing::Test {
  ForwardLab lab{{.credits = 32, .record_buffers = 16, .item_buffers = 16, .shared_connections = 1}};
  std::deque<Read> reads;
  bool has_come(std::size_t calls) {
    return bool{lab.until([&] { return lab.upstream.calls.size() == calls; })};
  }
  void answer_all(std::size_t from, std::size_t to) {
    for (std::size_t i = from; i < to; ++i) lab.upstream.send(0, record(read_reply(lab.upstream.calls[i])));
  }
};

TEST_F(Memory, clients_that_wait_for_long_or_short_replies_leave_each_other_client_a_buffer) {
  LabClient& first = warmed_client(lab);
  LabClient& second = warmed_client(lab);
  LabClient& victim = warmed_client(lab);
  std::size_t sent = 0;
  lab.upstream.calls.clear();
  for (const std::uint32_t bytes : {40'000u, 3000u}) {
    for (std::uint32_t i = 0; i < 8 + 2; ++i) reads.emplace_back(first, bytes);
    ASSERT_TRUE(has_come(sent += 8)) << "one client has half of all";
    for (std::uint32_t i = 0; i < 4; ++i) reads.emplace_back(second, bytes);
    ASSERT_TRUE(has_come(sent += 2)) << "what is left of those that are lent, and its own";
  }
  EXPECT_EQ(lab.count(Counter::waits_memory), 2u * (2 + 2));
  EXPECT_EQ(lab.count(Counter::waits_number), 0u);
  // Calls that need no memory are not blocked by reads of other clients or by waiting reads of the same
  // client.
  for (const std::uint32_t bytes : {40'000u, 3000u}) {
    const Read read(victim, bytes);
    ASSERT_TRUE(has_come(++sent));
    answer_all(sent - 1, sent);
    EXPECT_TRUE(lab.until([&] { return read.good(); }));
  }
  lab.upstream.answer = echo;
  for (LabClient* const client : {&first, &second, &victim})
    EXPECT_EQ(word_at(lab.call(*client, {.payload = plain(4), .max_reply_bytes = 64}).message, 6), 4u);
  // All reads complete in the end.
  lab.upstream.answer = read_reply;
  answer_all(0, 20);
  EXPECT_TRUE(
      lab.until([&] { return std::all_of(reads.begin(), reads.end(), [](auto& r) { return r.good(); }); }));
}

TEST_F(Memory, what_is_held_and_who_waits_is_published_and_counts_as_the_clients) {
  LabClient& client = warmed_client(lab);
  LabClient& other = warmed_client(lab);
  lab.upstream.calls.clear();
  for (std::uint32_t i = 0; i < 8 + 3; ++i) reads.emplace_back(client, 40'000);
  for (std::uint32_t i = 0; i < 2; ++i) reads.emplace_back(client, 3000);
  reads.emplace_back(other, 3000);
  ASSERT_TRUE(has_come(8 + 2 + 1));
  struct Use {
    std::uint32_t size, held, waiting;
    bool operator==(const Use&) const = default;
  };
  const auto shows = [&](std::size_t pool, const Use& wanted) {
    return lab.until([&] {
      lab.pass(tcp_upstream::kCreditIntervalNs);
      const segment::PoolUse& use = lab.area->pools[pool];
      return Use{use.buffers, use.held, use.waiting} == wanted;
    });
  };
  EXPECT_TRUE(shows(0, {lab.options.max_calls, 11, 0}));
  EXPECT_TRUE(shows(1, {16, 3, 0}));
  EXPECT_TRUE(shows(2, {16, 8, 3}));
  const std::uint64_t records = 8u * tcp::kMaxRecordBytes;
  EXPECT_EQ(lab.upstreams->held_bytes(0), records + 2u * tcp_upstream::kItemBytes);
  EXPECT_EQ(lab.upstreams->held_bytes(1), tcp_upstream::kItemBytes);
  lab.upstream.answer = read_reply;
  answer_all(0, 11);
  ASSERT_TRUE(lab.until([&] { return all_finished(client) && all_finished(other); }));
  for (std::size_t pool = 0; pool < segment::kUpstreamPools.size(); ++pool)
    EXPECT_TRUE(shows(pool, {pool == 0 ? lab.options.max_calls : 16, 0, 0}));
  EXPECT_EQ(lab.upstreams->held_bytes(0), 0u);
}

TEST_F(Memory, a_reply_that_ends_in_the_middle_leaves_its_memory_to_the_call) {
  LabClient& client = warmed_client(lab);
  lab.upstream.calls.clear();
  for (std::uint32_t round = 0; round < 20; ++round) {
    client.region_used = 0;
    const std::size_t calls = lab.upstream.calls.size();
    lab.upstream.answer = nullptr;
    const Read read(client, 40'000);
    ASSERT_TRUE(has_come(calls + 1));
    const FakeUpstream::Call call = lab.upstream.calls.back();
    const Bytes reply = record(read_reply(call));
    lab.upstream.send(call.connection, std::span(reply).first(20'000));
    lab.turns(20);
    lab.upstream.answer = read_reply;
    lab.upstream.close(call.connection);
    ASSERT_TRUE(lab.until([&] {
      lab.pass(tcp_upstream::kFirstRetryNs);
      return read.good();
    })) << round;
  }
}

TEST_F(Memory, what_a_client_leaves_behind_in_the_middle_of_its_replies_is_back) {
  LabClient& stays = warmed_client(lab);
  for (std::uint32_t round = 0; round < 6; ++round) {
    LabClient& leaves = round == 0 ? warmed_client(lab) : *lab.clients[1];
    lab.upstream.answer = nullptr;
    lab.upstream.calls.clear();
    leaves.region_used = 0;
    for (std::uint32_t i = 0; i < 8; ++i) reads.emplace_back(leaves, 40'000);
    ASSERT_TRUE(has_come(8));
    const Bytes reply = record(read_reply(lab.upstream.calls[0]));
    const std::size_t at = lab.upstream.calls[0].connection;
    lab.upstream.send(at, std::span(reply).first(20'000));
    lab.turns(20);
    lab.disconnect(leaves);
    if (round % 2 == 0)
      lab.upstream.send(at, std::span(reply).subspan(20'000));
    else
      lab.upstream.close(at);
    lab.turns(20);
    lab.reconnect(leaves);
    lab.upstream.answer = echo;
    lab.call(leaves, {.payload = plain(), .max_reply_bytes = 64});
  }
  lab.upstream.calls.clear();
  lab.upstream.answer = nullptr;
  for (std::uint32_t i = 0; i < 8; ++i) reads.emplace_back(stays, 40'000);
  EXPECT_TRUE(has_come(8)) << "as many as one client may have";
}

TEST_F(Memory, a_reply_for_which_the_client_has_no_room_costs_its_own_call_alone) {
  LabClient& client = warmed_client(lab);
  LabClient& other = warmed_client(lab);
  lab.upstream.answer = [](const auto& call) {
    return word_at(call.message, 10) == 9 ? echo(call)
                                          : success(call.xid(), pattern(word_at(call.message, 10), 1));
  };
  for (const std::uint32_t bytes : {9000u, 40'000u}) {
    const Outcome outcome = lab.call(client, {.payload = plain(bytes), .max_reply_bytes = 64});
    EXPECT_NE(outcome.status, CallStatus::Ok) << bytes;
    EXPECT_EQ(word_at(lab.call(other, {.payload = plain(9), .max_reply_bytes = 64}).message, 6), 9u);
    EXPECT_EQ(word_at(lab.call(client, {.payload = plain(9), .max_reply_bytes = 64}).message, 6), 9u);
  }
  EXPECT_EQ(lab.engine->counters().reply_too_large, 2u);
  EXPECT_EQ(lab.count(Counter::disconnects), 0u);
}

TEST_F(Memory, a_reply_with_no_room_in_its_slot_nor_in_the_transports_memory_is_refused) {
  ForwardLab tight({.reply_buffers = 1, .shared_connections = 1});
  LabClient& client = warmed_client(tight);
  rpcrdma::SharedMemory::Account account;
  ASSERT_NE(tight.engine->reply_memory().acquire(account, 1), nullptr);
  tight.upstream.answer = [](const auto& call) { return success(call.xid(), pattern(9000, 1)); };
  EXPECT_NE(tight.call(client, {.payload = plain(), .max_reply_bytes = 64}).status, CallStatus::Ok);
  EXPECT_EQ(tight.engine->counters().reply_too_large, 1u);
}

/// Distribution of one client's calls over connections.
struct Striped : testing::Test {
  static constexpr std::uint32_t kConnections = 4;
  ForwardLab lab{{.record_buffers = 32, .shared_connections = kConnections}};
  LabClient& client = warmed_client(lab);

  /// Returns the number of calls that each connection has received since the last call.
  std::vector<std::size_t> calls_by_connection(std::size_t expected) {
    EXPECT_TRUE(lab.until([&] { return lab.upstream.calls.size() == expected; }));
    std::vector<std::size_t> counts(lab.upstream.connections());
    for (const FakeUpstream::Call& call : lab.upstream.calls) ++counts[call.connection];
    lab.upstream.calls.clear();
    return counts;
  }
  void ask_for(std::uint32_t reply_bytes, std::uint32_t calls) {
    for (std::uint32_t i = 0; i < calls; ++i)
      client.submit({.payload = plain(), .max_reply_bytes = reply_bytes});
  }
};

TEST_F(Striped, long_replies_come_over_all_connections_in_turn) {
  ask_for(100'000, 2 * kConnections);
  EXPECT_EQ(calls_by_connection(2 * kConnections), std::vector<std::size_t>(kConnections, 2));
}

TEST_F(Striped, long_calls_go_over_all_connections_in_turn) {
  const LongWrite write(client, 100'000);
  for (std::uint32_t i = 0; i < 2 * kConnections; ++i) client.submit(write.request());
  EXPECT_EQ(calls_by_connection(2 * kConnections), std::vector<std::size_t>(kConnections, 2));
}

TEST_F(Striped, short_calls_stay_on_one_connection_and_take_no_turns) {
  ask_for(64, 8);
  EXPECT_EQ(calls_by_connection(8), std::vector<std::size_t>{8});
  ask_for(100'000, 1);
  ask_for(64, 3);
  ask_for(100'000, 1);
  EXPECT_EQ(calls_by_connection(5), (std::vector<std::size_t>{4, 1})) << "the first of the long ones too";
}

TEST_F(Striped, another_client_begins_at_another_connection) {
  LabClient& other = warmed_client(lab);
  other.submit({.payload = plain(), .max_reply_bytes = 100'000});
  EXPECT_EQ(calls_by_connection(1), (std::vector<std::size_t>{0, 1}));
  ask_for(100'000, 1);
  EXPECT_EQ(calls_by_connection(1), (std::vector<std::size_t>{1, 0}));
}

}  // namespace
}  // namespace sluice::tcp_upstream_test
