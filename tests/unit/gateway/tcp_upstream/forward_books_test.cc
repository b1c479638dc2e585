// SPDX-License-Identifier: Apache-2.0
//
// Accounting of the gateway: counters, published state, and release of connections, descriptors, memory and
// queues.
#include <filesystem>

#include "tests/unit/gateway/tcp_upstream/echoed_calls.h"

namespace sluice::tcp_upstream_test {
namespace {

using Counter = segment::UpstreamCounter;

std::size_t descriptors() {
  std::size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) ++count;
  return count;
}

TEST(ForwardBooks, its_state_is_published) {
  ForwardLab lab({.shared_connections = 2});
  LabClient& first = warmed_client(lab);
  LabClient& second = warmed_client(lab);
  first.submit({.payload = plain(), .max_reply_bytes = 64});
  for (int i = 0; i < 2; ++i) second.submit({.payload = plain(), .max_reply_bytes = 64});
  ASSERT_TRUE(lab.until([&] { return lab.upstream.calls.size() == 3; }));
  struct State {
    std::uint32_t connections, connecting, outstanding, waiting;
    bool operator==(const State&) const = default;
  };
  const auto shows = [&](const State& wanted) {
    return lab.until([&] {
      lab.pass(tcp_upstream::kCreditIntervalNs);
      const segment::UpstreamArea& area = *lab.area;
      return State{area.connections, area.connecting, area.outstanding, area.waiting} == wanted;
    });
  };
  EXPECT_TRUE(shows({2, 0, 3, 0}));
  EXPECT_EQ(lab.count(Counter::connects), 2u);
  // The upstream is down, so calls wait, and both connections are retried.
  lab.upstream.shut();
  for (std::size_t i = 0; i < 2; ++i) lab.upstream.close(i);
  EXPECT_TRUE(shows({0, 2, 0, 3}));
  EXPECT_EQ(lab.count(Counter::disconnects), 2u);
  lab.upstream.reopen();
  EXPECT_TRUE(shows({2, 0, 3, 0}));
  EXPECT_EQ(lab.count(Counter::connects), 4u);
  EXPECT_TRUE(lab.until([&] { return lab.upstream.connections() == 4; }));
}

TEST(ForwardBooks, only_what_was_sent_before_counts_as_sent_again) {
  ForwardLab lab({.shared_connections = 1});
  LabClient& client = warmed_client(lab);
  const std::uint64_t calls = lab.count(Counter::calls);
  lab.upstream.shut();
  lab.upstream.close(0);
  ASSERT_TRUE(lab.until([&] { return lab.count(Counter::disconnects) == 1; }));
  client.submit({.payload = plain(3), .max_reply_bytes = 64});
  ASSERT_TRUE(lab.until([&] {
    lab.pass(kSecond / 100);
    return lab.count(Counter::connect_failures) >= 3;
  }));
  EXPECT_EQ(lab.count(Counter::waits_room), 2u) << "the client's first call came before the connection, too";
  lab.upstream.answer = echo;
  lab.upstream.reopen();
  ASSERT_TRUE(lab.until([&] {
    lab.pass(kSecond / 100);
    return client.finished[0].has_value();
  }));
  EXPECT_EQ(lab.count(Counter::resent), 0u);
  EXPECT_EQ(lab.count(Counter::calls), calls + 1);
  EXPECT_EQ(lab.count(Counter::replies), calls + 1);
}

TEST(ForwardBooks, the_time_at_the_upstream_is_within_that_of_the_call) {
  ForwardLab lab;
  const std::uint64_t before = ForwardLab::clock();
  LabClient& client = warmed_client(lab);
  lab.upstream.answer = echo;
  lab.call(client, {.payload = plain(), .max_reply_bytes = 64});
  const std::uint64_t all = ForwardLab::clock() - before;
  EXPECT_EQ(lab.area->upstream_ns.count(), 2u);
  EXPECT_EQ(lab.area->gateway_ns.count(), 2u);
  EXPECT_LE(lab.area->upstream_ns.sum(), all);
  EXPECT_LE(lab.area->gateway_ns.sum(), all);
}

TEST(ForwardBooks, what_a_predecessor_left_in_the_segment_is_gone) {
  ForwardLab lab;
  segment::UpstreamArea area;
  for (auto& counter : area.counters) counter = 77;
  area.connections = 5;
  area.upstream_ns.record(1000);
  tcp_upstream::UpstreamSetup setup;
  setup.area = &area;
  setup.config.cache = lab.caches.front().get();
  setup.config.addresses = lab.addresses.get();
  setup.config.replies = {.records = 1, .items = 1};
  const tcp_upstream::UpstreamsConfig config{.upstreams = {setup}};
  const tcp_upstream::Upstreams upstreams(*lab.device, *lab.credits, lab.engine->registry(), config,
                                          &ForwardLab::clock);
  for (const auto& counter : area.counters) EXPECT_EQ(counter.load(), 0u);
  EXPECT_EQ(area.connections.load(), 0u);
  EXPECT_EQ(area.upstream_ns.count(), 0u);
}

TEST(ForwardBooks, descriptors_of_connections_that_end_are_closed) {
  {
    const ForwardLab lab;  // opens the descriptors that the process keeps
  }
  const std::size_t before = descriptors();
  {
    ForwardLab lab({.shared_connections = 1});
    LabClient& client = warmed_client(lab);
    const std::size_t with_one = descriptors();
    for (std::uint32_t i = 1; i <= 5; ++i) {
      lab.upstream.close(lab.upstream.connections() - 1);
      ASSERT_TRUE(lab.until([&] { return lab.count(Counter::disconnects) == i; }));
      lab.upstream.answer = echo;
      lab.call(client, {.payload = plain(), .max_reply_bytes = 64});
      EXPECT_EQ(descriptors(), with_one);
    }
  }
  EXPECT_EQ(descriptors(), before);
}

// --- Clients that disconnect

TEST(ForwardBooks, own_connections_of_clients_that_leave_are_there_for_others) {
  // The number of clients, one after the other, exceeds the number of connections.
  ForwardLab lab({.shared_connections = 1});
  lab.upstream.answer = echo;
  LabClient& client = lab.add_client();
  for (int round = 0; round < 40; ++round) {
    ASSERT_EQ(lab.call(client, {.payload = empty_compound(), .max_reply_bytes = 64}).status, CallStatus::Ok)
        << round;
    lab.disconnect(client);
    ASSERT_TRUE(lab.until([&] {
      lab.pass(tcp_upstream::kTickNs);
      return lab.engine->connection(0).state() == rpcrdma::Connection::State::Closed;
    }));
    lab.turns(5);
    client.finished.clear();
    lab.reconnect(client);
  }
}

// --- Memory

TEST(ForwardBooks, long_replies_that_nobody_waits_for_cost_no_memory) {
  ForwardLab lab({.record_buffers = 1, .shared_connections = 1});
  LabClient& client = warmed_client(lab);
  client.submit({.payload = plain(), .max_reply_bytes = 1u << 20});
  ASSERT_TRUE(lab.until([&] { return lab.upstream.calls.size() == 1; }));
  const FakeUpstream::Call call = lab.upstream.calls[0];
  const Bytes list = pattern(200'000, 3);
  for (std::uint32_t i = 1; i <= 5; ++i) lab.upstream.send(0, record(success(call.xid() + i, list)));
  ASSERT_TRUE(lab.until([&] { return lab.count(Counter::unmatched_replies) == 5; }));
  lab.upstream.send(0, record(success(call.xid(), list)));
  ASSERT_TRUE(lab.until([&] { return client.finished[0].has_value(); }));
  EXPECT_EQ(client.finished[0]->message.size(), kResultsAt + list.size());
}

TEST(ForwardBooks, long_replies_wait_for_the_transports_memory) {
  for (const std::size_t bytes : {100'000u, 9'000u}) {
    ForwardLab lab({.record_buffers = 8, .reply_buffers = 1, .shared_connections = 1});
    LabClient& client = warmed_client(lab);
    rpcrdma::SharedMemory::Account other;
    std::byte* const taken = lab.engine->reply_memory().acquire(other, 1);
    ASSERT_NE(taken, nullptr);
    lab.upstream.answer = [&](const auto& call) {
      return success(call.xid(), pattern(bytes, word_at(call.message, 10)));
    };
    for (std::uint32_t i = 0; i < 3; ++i) client.submit({.payload = plain(i), .max_reply_bytes = 1u << 20});
    ASSERT_TRUE(lab.until([&] { return lab.engine->counters().waits_reply_memory >= 3; }));
    lab.turns(20);
    for (const auto& outcome : client.finished) EXPECT_FALSE(outcome.has_value());
    lab.engine->reply_memory().release(taken);
    ASSERT_TRUE(lab.until([&] { return all_finished(client); }));
    for (std::uint32_t i = 0; i < 3; ++i) {
      const Bytes& message = client.finished[i]->message;
      ASSERT_EQ(message.size(), kResultsAt + bytes);
      EXPECT_TRUE(conformance::has_pattern(std::span(message).subspan(kResultsAt), i));
    }
    EXPECT_EQ(lab.count(Counter::replies), 4u);
    lab.turns(20);
    // All record buffers must be free again, because as many long replies are outstanding.
    for (std::uint32_t i = 0; i < 8; ++i) client.submit({.payload = plain(i), .max_reply_bytes = 1u << 20});
    EXPECT_TRUE(lab.until([&] { return all_finished(client); }));
  }
}

TEST(ForwardBooks, memory_for_a_reply_that_a_client_has_left_in_the_middle_is_back) {
  ForwardLab lab({.shared_connections = 1});
  LabClient& client = warmed_client(lab);
  client.submit({.payload = plain(), .max_reply_bytes = 1u << 20});
  ASSERT_TRUE(lab.until([&] { return lab.upstream.calls.size() == 1; }));
  const Bytes reply = record(success(lab.upstream.calls[0].xid(), pattern(60'000, 3)));
  lab.upstream.send(0, std::span(reply).first(20'000));
  lab.turns(20);
  lab.disconnect(client);
  ASSERT_EQ(lab.count(Counter::orphans), 1u);
  lab.upstream.close(0);
  ASSERT_TRUE(lab.until([&] {
    lab.pass(kSecond / 1000);
    return lab.upstream.calls.size() == 2;
  })) << "it is sent again";
  lab.pass(tcp_upstream::kCreditIntervalNs + tcp_upstream::kTickNs);
  lab.turns(20);
  EXPECT_EQ(lab.area->pools[static_cast<std::size_t>(tcp_upstream::ReplyNeed::Record)].held, 0u);
}

TEST(ForwardBooks, data_that_is_placed_takes_no_memory_for_results) {
  for (const std::uint32_t bytes : {9'000u, 200'000u}) {
    ForwardLab lab({.reply_buffers = 1});
    LabClient& client = warmed_client(lab);
    rpcrdma::SharedMemory::Account other;
    ASSERT_NE(lab.engine->reply_memory().acquire(other, 1), nullptr);
    lab.upstream.answer = [&](const auto& call) {
      Bytes results = words({0, 0, bytes, 1});
      append(results, opaque(pattern(bytes, 8)));
      return success(call.xid(), results);
    };
    const auto into = client.memory(bytes);
    const rdma::Sge piece = client.piece(into);
    const rpcrdma::WriteItem item{.pieces = {&piece, 1}};
    const Bytes read = nfs3(ulb::kNfs3Read, opaque(pattern(32, 5)));
    const Outcome outcome =
        lab.call(client, {.payload = read, .writes = {&item, 1}, .max_reply_bytes = 200}, {bytes});
    EXPECT_EQ(outcome.status, CallStatus::Ok);
    EXPECT_TRUE(conformance::has_pattern(into, 8));
  }
}

// --- Time

TEST(ForwardBooks, calls_that_the_upstream_does_not_take_in_time_leave_nothing) {
  ForwardLab lab({.credits = 32, .shared_connections = 1, .call_timeout_ns = 100 * kSecond});
  LabClient& client = warmed_client(lab);
  lab.upstream.reads = false;
  const LongWrite write(client, 1u << 20);
  for (int i = 0; i < 7; ++i) client.submit(write.request());
  lab.turns(500);
  lab.pass(101 * kSecond);
  ASSERT_TRUE(lab.until([&] {
    lab.pass(tcp_upstream::kCreditIntervalNs);
    return !lab.ends.empty();
  }));
  EXPECT_EQ(lab.ends, std::vector{rpcrdma::CloseReason::Unanswerable});
  EXPECT_GE(lab.count(Counter::timeouts), 1u);
  EXPECT_EQ(lab.engine->call_memory().available(), lab.engine->config().call_buffers);
}

}  // namespace
}  // namespace sluice::tcp_upstream_test
