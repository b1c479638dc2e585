// SPDX-License-Identifier: Apache-2.0
//
// Version 2 between two of our engines, each of which is both requester and responder. An observer checks the
// messages that either end sends, and counts credits itself.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

#include "tests/conformance/v2_lab.h"

namespace sluice::conformance::v2 {
namespace {

using rpcrdma::CallStatus;

/// Computes from the log of one end how much that end may send, and checks its continued messages.
class Observer {
 public:
  /// Reads the Sends that the end has posted since the last call.
  void look(const OpLog& own, const OpLog& peer) {
    while (seen_ < own.ops().size()) {
      const Op& op = own.ops()[seen_++];
      if (op.kind == OpKind::PostSend) check(op);
    }
    static_cast<void>(peer);
  }
  void granted(std::uint32_t credits) { balance_ += credits; }
  std::int64_t balance() const { return balance_; }

  std::size_t overruns = 0;
  std::size_t mixed = 0;
  std::size_t reverse_on_last = 0;
  std::map<std::uint32_t, std::size_t> parts;  ///< by XID

 private:
  void check(const Op& op) {
    const Bytes& message = op.content;
    --balance_;
    const bool grant = is_grant(message);
    if (balance_ < (grant ? -1 : 0)) ++overruns;
    if (grant) return;
    const std::pair<std::uint32_t, std::uint32_t> id{word_at(message, 0), word_at(message, 4) & kResponse};
    if (open_ && *open_ != id) ++mixed;
    const bool more = (word_at(message, 4) & kMore) != 0;
    open_.reset();
    if (more) open_ = id;
    ++parts[id.first];
  }

  std::size_t seen_ = 0;
  std::int64_t balance_ = 1;
  std::optional<std::pair<std::uint32_t, std::uint32_t>> open_;
};

struct PairOptions {
  std::uint32_t client_window = 8;  ///< half of it for reverse calls
  std::uint32_t server_window = 8;
  std::uint32_t assembly_buffers = 4;
  bool announce = true;
  rpcrdma::v2::ReverseSupport reverse = rpcrdma::v2::ReverseSupport::Inline;
  bool hold_calls = false;  ///< at the server
};

/// Client and server, each with a requester and the test program.
class Pair {
 public:
  explicit Pair(const PairOptions& chosen = {}) : options(chosen) {
    fabric = rdma::loopback::Fabric::in_process({.links = 4});
    for (int side = 0; side < 2; ++side) {
      End& end = ends[side];
      end.device = std::make_unique<LoggedDevice>(
          rdma::loopback::make_device(fabric, {.name = side == 0 ? "client" : "server"}), end.log);
      rpcrdma::EngineConfig engine;
      engine.max_connections = 4;
      engine.capacity.requests = 64;
      engine.assembly_buffers = options.assembly_buffers;
      end.engine = std::make_unique<rpcrdma::Engine>(*end.device, engine);
      end.service = std::make_unique<TestService>(*end.device);
      end.engine->add_service(*end.service);
      rpcrdma::RequesterConfig requester{.requests = 64, .windows = 64};
      requester.reverse = side == 1;
      requester.reverse_chunks = options.reverse == rpcrdma::v2::ReverseSupport::General;
      end.requester =
          std::make_unique<rpcrdma::Requester>(end.engine->requester_context(), *end.device, requester);
      end.memory = end.device->allocate_memory(1u << 20);
      fill_pattern(end.memory.bytes, 1);
    }
    ends[1].device->connection_manager()->listen(kPort);
    connect();
  }

  void connect() {
    rdma::ConnectionManager& server_cm = *ends[1].device->connection_manager();
    rdma::ConnectionManager& client_cm = *ends[0].device->connection_manager();
    ends[0].connection = open(0, ends[0].engine->free_connection());
    client_id = client_cm.connect(ends[0].connection->queue_pair(), kPort, {});
    bool up = false;
    for (int i = 0; i < 100 && !up; ++i) {
      rdma::CmEvent events[4];
      const std::size_t at_server = server_cm.poll_events(events);
      for (const rdma::CmEvent& event : std::span(events, at_server)) {
        if (event.type != rdma::CmEventType::ConnectRequest) continue;
        ends[1].connection = open(1, ends[1].engine->free_connection());
        server_cm.accept(event.id, ends[1].connection->queue_pair(), {});
        ends[1].connection->established();
      }
      const std::size_t at_client = client_cm.poll_events(events);
      for (const rdma::CmEvent& event : std::span(events, at_client))
        if (event.type == rdma::CmEventType::Established) {
          up = true;
          ends[0].connection->established();
        }
    }
    ASSERT_TRUE(up);
    for (End& end : ends) end.log.clear(), end.observer = {}, end.granted_from = 0;
  }

  rpcrdma::Connection* open(int side, rpcrdma::Connection* connection) {
    rpcrdma::ConnectionConfig config;
    config.active = side == 0;
    config.max_version = 2;
    const std::uint32_t window = side == 0 ? options.client_window : options.server_window;
    config.credit_grant = std::max(1u, window / 2);
    config.credits_requested = window - config.credit_grant;
    config.version2.announce = options.announce;
    config.version2.hold_calls = options.hold_calls && side == 1;
    config.version2.parameters.reverse = options.reverse;
    connection->open(ends[side].device->create_queue_pair(ends[side].engine->queue_pair_limits()), config,
                     PeerAddress::from_ipv4(10, 0, 0, 1), ends[side].requester.get());
    return connection;
  }

  void drop(int side) {
    ends[side].connection->close(rpcrdma::CloseReason::LocalClose);
    for (int i = 0; i < 200; ++i) {
      for (End& end : ends) end.engine->poll(now_ns += 500);
      bool closed = true;
      for (End& end : ends) closed = closed && end.connection->state() == rpcrdma::Connection::State::Closed;
      if (closed) break;
      // The other end is notified by connection management.
      if (i == 20) ends[1 - side].connection->close(rpcrdma::CloseReason::PeerClosed);
    }
    for (End& end : ends)
      while (end.engine->take_closed() != nullptr) {
      }
  }

  void turn(int side) {
    ends[side].engine->poll(now_ns += 500);
    watch();
  }
  void settle(int turns = 4000) {
    for (int quiet = 0; turns > 0 && quiet < 16; --turns) {
      const std::size_t before = ends[0].log.ops().size() + ends[1].log.ops().size();
      for (int side = 0; side < 2; ++side) turn(side);
      quiet = ends[0].log.ops().size() + ends[1].log.ops().size() == before ? quiet + 1 : 0;
    }
  }

  /// Adds the credits of each posted message to the balance of the other end, which may use them once the
  /// message has arrived.
  void watch() {
    for (int side = 0; side < 2; ++side) {
      End& end = ends[side];
      for (; end.granted_from < end.log.ops().size(); ++end.granted_from) {
        const Op& op = end.log.ops()[end.granted_from];
        if (op.kind == OpKind::PostSend && word_at(op.content, 3) != kError)
          ends[1 - side].observer.granted(word_at(op.content, 2) & 0xffff);
      }
    }
    for (int side = 0; side < 2; ++side) ends[side].observer.look(ends[side].log, ends[1 - side].log);
  }

  std::string state() const {
    std::string text;
    for (const End& end : ends) {
      const auto& flow = end.connection->flow_control();
      text += " window " + std::to_string(flow.window()) + " balance " + std::to_string(flow.balance()) +
              " unused " + std::to_string(flow.unused()) + " busy " +
              std::to_string(end.connection->responder().busy_slots()) + " outstanding " +
              std::to_string(end.requester->outstanding()) + " assembly " +
              std::to_string(end.engine->assembly_memory().available()) +
              (end.connection->is_open() ? " open;" : " closed;");
    }
    return text;
  }

  struct Outcome {
    CallStatus status{};
    std::uint32_t tag = 0;
    std::size_t reply_bytes = 0;
  };
  struct Ticket {
    Pair* pair = nullptr;
    int side = 0;
    std::uint32_t tag = 0;
  };
  static void completed(void* context, const rpcrdma::Reply& reply) noexcept {
    auto& ticket = *static_cast<Ticket*>(context);
    ticket.pair->ends[ticket.side].finished.push_back({reply.status(), ticket.tag, reply.message().size()});
  }
  bool call(int side, std::span<const std::byte> payload, std::uint32_t tag, std::uint32_t max_reply = 64,
            std::span<const rpcrdma::WriteItem> writes = {}, std::span<const rpcrdma::ReadItem> reads = {}) {
    tickets.push_back(std::make_unique<Ticket>(Ticket{this, side, tag}));
    return ends[side]
        .requester
        ->submit({.payload = payload,
                  .reads = reads,
                  .writes = writes,
                  .max_reply_bytes = max_reply,
                  .completion = &completed,
                  .context = tickets.back().get()})
        .has_value();
  }

  struct End {
    OpLog log;
    std::unique_ptr<LoggedDevice> device;
    std::unique_ptr<rpcrdma::Engine> engine;
    std::unique_ptr<TestService> service;
    std::unique_ptr<rpcrdma::Requester> requester;
    rpcrdma::Connection* connection = nullptr;
    rdma::MemoryRegion memory;
    Observer observer;
    std::size_t granted_from = 0;
    std::vector<Outcome> finished;
  };
  PairOptions options;
  std::shared_ptr<rdma::loopback::Fabric> fabric;
  End ends[2];
  std::optional<rdma::CmId> client_id;
  std::vector<std::unique_ptr<Ticket>> tickets;
  std::uint64_t now_ns = 1;
};

Bytes name_of(std::uint32_t bytes) {
  Bytes payload = test_call(0, TestService::kName, {bytes});
  payload.resize(44 + xdr::padded(bytes));
  return payload;
}

TEST(V2Pair, V2_006_V2_010_V2_058_both_ends_tell_their_properties) {
  Pair pair;
  pair.settle();
  for (const auto& end : pair.ends) {
    EXPECT_EQ(end.connection->version(), 2u);
    EXPECT_FALSE(end.connection->negotiating());
    EXPECT_EQ(end.engine->counters().properties_received, 1u);
    EXPECT_EQ(end.connection->agreement().max_segments, 128u);
  }
}

/// The handshake has three rounds of 10 KB, and no call is sent before it is over (V2-063).
struct Rounds {
  rpcrdma::Connection* connection = nullptr;
  bool server = false;
  std::uint32_t seen = 0;
  Bytes octets = Bytes(10'000, std::byte{0x5a});

  static bool on_properties(void* context, rpcrdma::Connection& connection, std::span<const std::byte> body,
                            bool) noexcept {
    auto& self = *static_cast<Rounds*>(context);
    const auto properties = rpcrdma::v2::decode_properties(body);
    if (!properties->host_authentication) return true;
    EXPECT_TRUE(std::equal(self.octets.begin(), self.octets.end(), properties->host_authentication->begin(),
                           properties->host_authentication->end()));
    ++self.seen;
    if (self.seen < 3 || self.server) {
      EXPECT_TRUE(connection.send_host_authentication(self.octets));
    }
    if (self.seen == 3 && self.server) connection.admit(HostName("a"));
    return true;
  }
};

TEST(V2Pair, V2_062_V2_063_a_handshake_of_several_large_rounds_comes_before_calls) {
  Pair pair({.assembly_buffers = 8, .hold_calls = true});
  Rounds rounds[2];
  for (int side = 0; side < 2; ++side) {
    rounds[side].server = side == 1;
    pair.ends[side].connection->set_property_sink(&Rounds::on_properties, &rounds[side]);
  }
  ASSERT_TRUE(pair.call(0, test_call(0, 0), 1));
  pair.settle();
  EXPECT_TRUE(pair.ends[1].connection->holds_calls());
  EXPECT_TRUE(pair.ends[0].finished.empty());
  EXPECT_TRUE(pair.ends[0].connection->send_host_authentication(rounds[0].octets));
  pair.settle();
  EXPECT_EQ(rounds[0].seen, 3u);
  EXPECT_EQ(rounds[1].seen, 3u);
  ASSERT_EQ(pair.ends[0].finished.size(), 1u);
  EXPECT_EQ(pair.ends[0].finished[0].status, CallStatus::Ok);
  EXPECT_GE(pair.ends[0].engine->counters().parts_sent, 6u);
  for (const auto& end : pair.ends) {
    EXPECT_EQ(end.observer.overruns, 0u);
    EXPECT_EQ(end.observer.mixed, 0u);
    EXPECT_EQ(end.engine->assembly_memory().available(), pair.options.assembly_buffers);
  }
}

TEST(V2Pair, V2_132_V2_138_calls_in_both_directions_at_once) {
  Pair pair({.client_window = 16, .server_window = 16});
  pair.settle();
  std::uint32_t tag = 0;
  for (int round = 0; round < 10; ++round) {
    for (int i = 0; i < 10; ++i)
      for (int side = 0; side < 2; ++side) EXPECT_TRUE(pair.call(side, test_call(0, 0), tag++));
    pair.settle();
  }
  for (const auto& end : pair.ends) {
    ASSERT_EQ(end.finished.size(), 100u);
    for (const auto& outcome : end.finished) EXPECT_EQ(outcome.status, CallStatus::Ok);
    EXPECT_EQ(end.observer.overruns, 0u);
  }
}

TEST(V2Pair, V2_032_V2_084_V2_085_V2_091_long_messages_both_ways_through_a_narrow_window) {
  Pair pair({.client_window = 4, .server_window = 64});
  pair.settle();
  const Bytes call = name_of(160000);
  for (int i = 0; i < 5; ++i) {
    for (int side = 0; side < 2; ++side) {
      // Reverse calls have no chunks at level INLINE, so every long call is continued (V2-136).
      ASSERT_TRUE(
          pair.call(side, side == 0 ? test_call(0, TestService::kList, {15000}) : name_of(15000), 1, 16000));
      ASSERT_TRUE(pair.call(side, test_call(0, TestService::kList, {15000}), 2, 16000));
    }
  }
  pair.settle(100000);
  for (const auto& end : pair.ends) {
    ASSERT_EQ(end.finished.size(), 10u);
    for (const auto& outcome : end.finished) EXPECT_EQ(outcome.status, CallStatus::Ok);
    EXPECT_EQ(end.observer.overruns, 0u);
    EXPECT_EQ(end.observer.mixed, 0u);
    EXPECT_GT(end.engine->counters().parts_sent, 10u);
  }
}

TEST(V2Pair, V2_135_V2_136_chunks_against_the_flow_at_level_general_only) {
  for (const auto level : {rpcrdma::v2::ReverseSupport::Inline, rpcrdma::v2::ReverseSupport::General}) {
    Pair pair({.reverse = level});
    pair.settle();
    auto& server = pair.ends[1];
    const rdma::Sge piece{server.memory.bytes.data(), 65536, server.memory.lkey};
    const rpcrdma::WriteItem item{.pieces = {&piece, 1}};
    fill_pattern(server.memory.bytes, 9);
    ASSERT_TRUE(pair.call(1, test_call(0, TestService::kSource, {65536}), 1, 64, {&item, 1}));
    pair.settle();
    ASSERT_EQ(server.finished.size(), 1u);
    const bool general = level == rpcrdma::v2::ReverseSupport::General;
    EXPECT_EQ(server.finished[0].status, general ? CallStatus::Ok : CallStatus::TooLarge);
    EXPECT_EQ(has_pattern(server.memory.bytes.first(65536), 1), general);
    EXPECT_EQ(pair.ends[0].engine->counters().remote_invalidations, general ? 1u : 0u);
  }
}

TEST(V2Pair, V2_036_V2_042_two_idle_ends_fall_silent) {
  for (const std::uint32_t window : {2u, 3u, 4u, 64u}) {
    Pair pair({.client_window = window, .server_window = window});
    pair.settle();
    for (const auto& end : pair.ends) {
      std::size_t grants = 0;
      for (const Op& op : end.log.all(OpKind::PostSend)) grants += is_grant(op.content) ? 1 : 0;
      EXPECT_LE(grants, 2u) << window;
    }
    const std::size_t before = pair.ends[0].log.ops().size() + pair.ends[1].log.ops().size();
    for (int i = 0; i < 2000; ++i)
      for (int side = 0; side < 2; ++side) pair.ends[side].engine->poll(pair.now_ns += 100'000'000);
    EXPECT_EQ(pair.ends[0].log.ops().size() + pair.ends[1].log.ops().size(), before) << window;
  }
}

TEST(V2Pair, V2_139_V2_140_replies_go_before_calls_against_the_flow) {
  Pair pair({.client_window = 4, .server_window = 64});
  pair.settle();
  for (std::uint32_t i = 0; i < 50; ++i) ASSERT_TRUE(pair.call(1, test_call(0, TestService::kLater), i));
  pair.settle();
  // The client answers none of the reverse calls; its own calls are served nevertheless.
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(pair.call(0, test_call(0, 0), 0));
    pair.settle();
  }
  EXPECT_EQ(pair.ends[0].finished.size(), 20u);
  pair.drop(0);
  EXPECT_TRUE(pair.ends[1].finished.empty());  // the calls wait for the client to reconnect
  pair.ends[0].service->complete_later();
  pair.connect();
  pair.settle();
  for (int i = 0; i < 60; ++i) {
    pair.ends[0].service->complete_later();
    pair.settle();
  }
  EXPECT_EQ(pair.ends[1].finished.size(), 50u);
}

/// The main property: for all windows, sizes, directions and losses of the connection, every call ends
/// exactly once with its own answer, no end sends more than it was granted, and nothing stalls.
class V2Random : public testing::TestWithParam<std::uint32_t> {};

TEST_P(V2Random, V2_032_V2_035_V2_036_V2_038_V2_085_V2_090_V2_091_every_call_ends_once) {
  std::mt19937 random(GetParam());
  const auto upto = [&random](std::uint32_t n) {
    return std::uniform_int_distribution<std::uint32_t>(0, n)(random);
  };
  Pair pair(
      {.client_window = 2 + upto(30),
       .server_window = 2 + upto(30),
       .assembly_buffers = 1 + upto(2),
       .announce = upto(3) > 0,
       .reverse = upto(1) == 0 ? rpcrdma::v2::ReverseSupport::Inline : rpcrdma::v2::ReverseSupport::General});
  std::uint32_t submitted[2] = {};
  std::map<std::uint32_t, std::size_t> expected[2];
  const std::uint32_t losses = upto(2);
  const std::uint32_t steps = 400;
  for (std::uint32_t step = 0; step < steps; ++step) {
    const int side = static_cast<int>(upto(1));
    if (upto(2) == 0) {
      const std::uint32_t tag = submitted[side];
      const std::uint32_t bytes = upto(3) == 0 ? upto(14000) : upto(200);
      const bool list = upto(1) == 0;
      const Bytes payload = list ? test_call(0, TestService::kList, {bytes}) : name_of(bytes);
      if (pair.call(side, payload, tag, list ? bytes + 64 : 64)) {
        expected[side][tag] = list ? 28 + xdr::padded(bytes) : 28;
        ++submitted[side];
      }
    }
    for (std::uint32_t i = upto(4); i > 0; --i) pair.turn(static_cast<int>(upto(1)));
    if (losses > 0 && step % (steps / (losses + 1)) == steps / (losses + 1) - 1) {
      pair.drop(side);
      pair.connect();
    }
    for (const auto& end : pair.ends) ASSERT_TRUE(end.connection->is_open());
  }
  pair.settle(200000);
  for (int side = 0; side < 2; ++side) {
    const auto& end = pair.ends[side];
    EXPECT_EQ(end.observer.overruns, 0u);
    EXPECT_EQ(end.observer.mixed, 0u);
    ASSERT_EQ(end.finished.size(), submitted[side]) << "a call is lost, or stalled: " << pair.state();
    std::set<std::uint32_t> seen;
    for (const auto& outcome : end.finished) {
      EXPECT_TRUE(seen.insert(outcome.tag).second);
      EXPECT_EQ(outcome.status, CallStatus::Ok);
      EXPECT_EQ(outcome.reply_bytes, expected[side][outcome.tag]);
    }
    EXPECT_EQ(end.engine->assembly_memory().available(), pair.options.assembly_buffers);
    EXPECT_EQ(end.engine->counters().credit_overruns, 0u);
    // Without losses every call is executed once.
    if (losses == 0) {
      EXPECT_EQ(end.service->executed.size(), submitted[1 - side]);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, V2Random, testing::Range(1u, 201u));

}  // namespace
}  // namespace sluice::conformance::v2
