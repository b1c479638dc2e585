// SPDX-License-Identifier: Apache-2.0
//
// Calls that wait for a free XID, who frees one, and how often the gateway checks its connections.
#include "tests/unit/service/forward/forward_lab.h"

namespace sluice::forward_test {
namespace {

using Counter = segment::UpstreamCounter;

Bytes plain(std::uint32_t word = 0) {
  return call_of(0x20000123, 1, 7, words({word}));
}
Bytes echo(const FakeUpstream::Call& call) {
  return success(call.xid(), words({word_at(call.message, 10)}));
}
/// A client that has been granted all its credits. The upstream no longer answers.
LabClient& warmed_client(ForwardLab& lab) {
  LabClient& client = lab.add_client();
  lab.upstream.answer = echo;
  lab.call(client, {.payload = plain(), .max_reply_bytes = 64});
  lab.upstream.answer = nullptr;
  lab.upstream.calls.clear();
  client.finished.clear();
  return client;
}
TEST(ForwardQueue, calls_of_a_client_that_leaves_give_up_their_places) {
  ForwardLab lab({.shared_connections = 1, .max_calls = 2});
  LabClient& leaves = warmed_client(lab);
  LabClient& stays = warmed_client(lab);
  lab.upstream.calls.clear();
  const std::uint64_t waited = lab.count(Counter::waits_number);
  for (std::uint32_t i = 0; i < 4; ++i) leaves.submit({.payload = plain(i), .max_reply_bytes = 64});
  ASSERT_TRUE(lab.until([&] { return lab.count(Counter::waits_number) == waited + 2; }));
  stays.submit({.payload = plain(9), .max_reply_bytes = 64});
  ASSERT_TRUE(lab.until([&] { return lab.count(Counter::waits_number) == waited + 3; }));
  ASSERT_EQ(lab.upstream.calls.size(), 2u);
  lab.disconnect(leaves);
  ASSERT_TRUE(lab.until([&] { return lab.upstream.calls.size() == 3; }));
  EXPECT_EQ(word_at(lab.upstream.calls[2].message, 10), 9u)
      << "nothing is sent for the client that disconnected";
  EXPECT_EQ(lab.count(Counter::abandoned), 4u);
  lab.upstream.send(0, record(echo(lab.upstream.calls[2])));
  ASSERT_TRUE(lab.until([&] { return stays.finished[0].has_value(); }));
  lab.upstream.answer = echo;
  for (std::uint32_t i = 0; i < 4; ++i)
    EXPECT_EQ(word_at(lab.call(stays, {.payload = plain(i), .max_reply_bytes = 64}).message, 6), i);
  EXPECT_EQ(lab.upstream.calls.size(), 7u);
}

TEST(ForwardQueue, a_reply_that_waits_for_memory_has_freed_its_number) {
  ForwardLab lab({.record_buffers = 4, .reply_buffers = 1, .shared_connections = 1, .max_calls = 2});
  LabClient& client = warmed_client(lab);
  rpcrdma::SharedMemory::Account other;
  std::byte* const taken = lab.engine->reply_memory().acquire(other, 1);
  ASSERT_NE(taken, nullptr);
  lab.upstream.answer = [](const auto& call) {
    const std::uint32_t word = word_at(call.message, 10);
    return word == 9 ? echo(call) : success(call.xid(), pattern(100'000, word));
  };
  for (std::uint32_t i = 0; i < 2; ++i) client.submit({.payload = plain(i), .max_reply_bytes = 1u << 20});
  ASSERT_TRUE(lab.until([&] { return lab.engine->counters().waits_reply_memory == 2; }));
  EXPECT_EQ(lab.count(Counter::replies), 3u);
  EXPECT_EQ(word_at(lab.call(client, {.payload = plain(9), .max_reply_bytes = 64}).message, 6), 9u);
  EXPECT_FALSE(client.finished[0].has_value() || client.finished[1].has_value());
  lab.engine->reply_memory().release(taken);
  ASSERT_TRUE(lab.until([&] { return client.finished[0].has_value() && client.finished[1].has_value(); }));
}

TEST(ForwardQueue, its_state_is_published_once_in_an_interval_of_whole_ticks) {
  ForwardLab lab;
  const auto published = [&](std::uint64_t now_ns) {
    lab.area->connections = 99;
    lab.upstreams->poll(now_ns);
    return lab.area->connections == 0;
  };
  const std::uint64_t begin = ForwardLab::clock() + 3'600'000'000'000;
  EXPECT_TRUE(published(begin));
  // A tick later nothing is due.
  EXPECT_FALSE(published(begin + forward::kTickNs));
  EXPECT_FALSE(published(begin + forward::kCreditIntervalNs - 1));
  // The last tick was one nanosecond ago, then almost one tick.
  EXPECT_FALSE(published(begin + forward::kCreditIntervalNs));
  EXPECT_FALSE(published(begin + forward::kCreditIntervalNs + forward::kTickNs - 2));
  EXPECT_TRUE(published(begin + forward::kCreditIntervalNs + forward::kTickNs - 1));
  // And at the very end of an interval.
  const std::uint64_t next = begin + 2 * forward::kCreditIntervalNs + forward::kTickNs - 1;
  EXPECT_FALSE(published(next - forward::kTickNs));
  EXPECT_TRUE(published(next));
  EXPECT_FALSE(published(next + forward::kTickNs));
}

}  // namespace
}  // namespace sluice::forward_test
