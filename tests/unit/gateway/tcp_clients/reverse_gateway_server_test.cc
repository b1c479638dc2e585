// SPDX-License-Identifier: Apache-2.0
//
// Faulty servers at the reverse gateway. Each fault fails the call that it concerns, and no other one.
#include <chrono>

#include "tests/conformance/raw_call.h"
#include "tests/conformance/v2_lab.h"
#include "tests/unit/gateway/tcp_clients/reverse_gateway_lab.h"

namespace sluice::tcp_clients_test {
namespace {

using conformance::RawCall;

constexpr std::uint32_t kCount = 9000;
constexpr std::uint64_t kTurnNs = 10'000;

/// The server's side, written by hand.
class RawServer {
 public:
  explicit RawServer(std::uint32_t version = 1, std::uint32_t max_io_bytes = tcp::kMaxDataBytes)
      : side(fabric, {.version = version, .max_io_bytes = max_io_bytes}, &clock) {
    raw_device->connection_manager()->listen(conformance::kPort);
    client = &side.add_peer();
  }

  void turn() {
    side.poll(clock());
    std::array<rdma::CmEvent, 4> events;
    rdma::ConnectionManager& cm = *raw_device->connection_manager();
    const std::size_t count = cm.poll_events(events);
    for (const rdma::CmEvent& event : std::span(events).first(count)) {
      if (event.type != rdma::CmEventType::ConnectRequest) continue;
      peer = std::make_unique<conformance::RawPeer>(*raw_device, 4096, 64);
      peer->owned_qp = peer->make_queue_pair();
      seen_ = 0;
      EXPECT_TRUE(cm.accept(event.id, *peer->owned_qp, {}));
    }
    if (!peer) return;
    peer->poll();
    const bool greeted = side.options.version == 2 && !peer->inbox.empty();
    if (greeted && !std::exchange(granted_, true)) peer->send(conformance::v2::grant(200));
  }
  testing::AssertionResult until(const std::function<bool()>& reached) {
    for (int i = 0; i < 100'000; ++i) {
      if (reached()) return testing::AssertionSuccess();
      tcp_upstream_test::ForwardLab::skipped_ns += kTurnNs;  // independent of the test's speed
      turn();
    }
    return testing::AssertionFailure() << "the condition was never met";
  }
  /// Returns the next call that the server receives.
  RawCall next_call() {
    EXPECT_TRUE(until([&] { return peer && peer->inbox.size() > seen_; }));
    RawCall call{.credits = 8};
    if (!peer || peer->inbox.size() <= seen_) return call;
    const Bytes message = peer->inbox[seen_++].bytes;
    const auto decoded = rpcrdma::v1::decode(message);
    EXPECT_EQ(decoded.status, rpcrdma::v1::Decode::Ok);
    call.xid = static_cast<std::uint32_t>(decoded.header.fixed.xid);
    for (const auto chunk : decoded.header.chunks.writes) {
      call.writes.emplace_back();
      for (std::uint32_t i = 0; i < chunk.size(); ++i) call.writes.back().push_back(chunk[i]);
    }
    return call;
  }
  /// Returns the chunk lists of the next call, in either version.
  rpcrdma::ChunkLists next_lists() {
    namespace v2 = conformance::v2;
    while (until([&] { return peer && peer->inbox.size() > seen_; })) {
      const Bytes& message = peer->inbox[seen_++].bytes;
      if (word_at(message, 1) == 1) return rpcrdma::v1::decode(message).header.chunks;
      if (!v2::is_grant(message) && word_at(message, 3) != v2::kConnProp)
        return rpcrdma::v2::decode(message).header.chunks;
    }
    ADD_FAILURE() << "there was no call";
    return {};
  }
  Bytes answer() {
    std::optional<Bytes> record;
    EXPECT_TRUE(until([&] { return (record = client->take_record()).has_value() || client->ended(); }));
    return record.value_or(Bytes{});
  }
  /// Checks that the client is disconnected without a reply, so that it retransmits its call on another
  /// connection.
  void expect_disconnected() {
    EXPECT_TRUE(until([&] { return client->ended(); }));
    EXPECT_EQ(client->received(), 0u);
    client = &side.add_peer();
  }
  /// Makes a first call, whose reply grants all credits.
  void connect() {
    read(1);
    RawCall call = next_call();
    call.writes.clear();
    peer->send(call.with(success(1, words({70, 0}))));
    EXPECT_EQ(answer(), success(1, words({70, 0})));
  }
  void pass(std::uint64_t ns) {
    tcp_upstream_test::ForwardLab::skipped_ns += ns;
    for (int i = 0; i < 200; ++i) turn();
  }
  void read(std::uint32_t xid) {
    Bytes arguments = opaque(pattern(32, 5));
    append(arguments, words({0, 0, kCount}));
    Bytes call = nfs3(ulb::kNfs3Read, arguments);
    xdr::store_u32(call.data(), xid);
    client->send_record(call);
  }
  /// Checks that another call succeeds.
  void expect_healthy() {
    read(0x99);
    RawCall call = next_call();
    ASSERT_EQ(call.writes.size(), 1u);
    const Bytes data = pattern(kCount, 3);
    peer->write_remote(call.writes[0][0], data);
    call.writes[0][0].length = kCount;
    peer->send(call.with(results(0x99, kCount)));
    Bytes whole = results(0x99, kCount);
    append(whole, data);
    EXPECT_EQ(answer(), whole);
  }
  static Bytes results(std::uint32_t xid, std::uint32_t count) {
    return success(xid, words({0, 0, count, 1, count}));
  }
  static std::uint64_t clock() noexcept { return tcp_upstream_test::ForwardLab::clock(); }

  std::shared_ptr<rdma::loopback::Fabric> fabric = rdma::loopback::Fabric::in_process({.links = 8});
  std::unique_ptr<rdma::Device> raw_device = rdma::loopback::make_device(fabric, {.name = "raw"});
  ReverseGatewaySide side;
  std::unique_ptr<conformance::RawPeer> peer;
  TcpPeer* client = nullptr;

 private:
  std::size_t seen_ = 0;
  bool granted_ = false;  ///< version 2
};

const Bytes kSystemError = words({7, 1, 0, 0, 0, 5});

TEST(ReverseGatewayServer, V1_104_the_pad_of_placed_data_is_the_gateways) {
  RawServer server;
  server.read(7);
  RawCall call = server.next_call();
  const Bytes data = pattern(8191, 3);
  server.peer->write_remote(call.writes[0][0], data);
  call.writes[0][0].length = 8191;
  server.peer->send(call.with(RawServer::results(7, 8191)));
  Bytes whole = RawServer::results(7, 8191);
  append(whole, data);
  whole.push_back(std::byte{0});
  EXPECT_EQ(server.answer(), whole);
}

/// Returns a call of RPCSEC_GSS (RFC 2203): version 1, DATA, sequence number, service, handle; arguments
/// plain, signed or encrypted.
Bytes gss_call(std::uint32_t service, std::uint32_t procedure, const Bytes& plain) {
  Bytes arguments = plain;
  if (service == 2) {
    Bytes body = words({0});
    append(body, plain);
    arguments = opaque(body);
    append(arguments, opaque(pattern(28, 3)));
  }
  if (service == 3) arguments = opaque(pattern(static_cast<std::uint32_t>(plain.size() + 60), 3));
  Bytes credential = words({1, 0, 77, service});
  append(credential, opaque(pattern(8, 1)));
  Bytes call = words({7, 0, 2, ulb::kNfsProgram, 3, procedure, 6});
  append(call, opaque(credential));
  append(call, words({6}));
  append(call, opaque(pattern(28, 2)));
  append(call, arguments);
  return call;
}

TEST(ReverseGatewayServer, what_the_server_announces_is_lowered_to_what_can_be_carried) {
  constexpr std::uint32_t kNone = 1, kIntegrity = 2;
  const auto results = [](std::uint32_t size) {
    return success(7, words({0, 0, size, size, 4096, size, size, 4096, size, 0, ~0u, 0, 1, 0x1b}));
  };
  constexpr std::uint32_t kHuge = 64u << 20;
  for (const std::uint32_t most : {1u << 20, 4u << 20})
    for (const std::uint32_t protection : {kNone, kIntegrity}) {
      RawServer server(1, most);
      server.client->send_record(gss_call(protection, ulb::kNfs3FsInfo, opaque(pattern(32, 5))));
      RawCall call = server.next_call();
      server.peer->send(call.with(results(kHuge)));
      EXPECT_EQ(server.answer(), results(protection == kNone ? most : kHuge)) << protection;
    }
}

TEST(ReverseGatewayServer, behind_an_error_nothing_is_announced) {
  constexpr std::uint32_t kSystemErr = 5, kLarge = 4u << 20;
  RawServer server;
  Bytes fsinfo = nfs3(ulb::kNfs3FsInfo, opaque(pattern(32, 5)));
  xdr::store_u32(fsinfo.data(), 7);
  server.client->send_record(fsinfo);
  RawCall call = server.next_call();
  const Bytes error =
      words({7, 1, 0, 0, 0, kSystemErr, 0, 0, kLarge, kLarge, 1, kLarge, kLarge, 1, kLarge, 0, ~0u, 0, 1, 0});
  server.peer->send(call.with(error));
  EXPECT_EQ(server.answer(), error);
}

TEST(ReverseGatewayServer, what_is_announced_behind_placed_data_is_lowered_too) {
  constexpr std::uint32_t kMaxRead = 1u << 30;
  const auto attributes = [](std::uint32_t size) { return words({kGetAttr, 0, 1, kMaxRead, 8, 0, size}); };
  const Bytes before = success(7, words({0, 0, 2, kRead, 0, 1, kCount}));
  const Bytes data = pattern(kCount, 3);
  RawServer server;
  Bytes asked =
      tcp_upstream_test::call_of(ulb::kNfsProgram, 4, ulb::kNfs4Compound,
                                 words({0, 1, 2, kRead, 1, 2, 3, 4, 0, 0, kCount, kGetAttr, 1, kMaxRead}));
  xdr::store_u32(asked.data(), 7);
  server.client->send_record(asked);
  RawCall call = server.next_call();
  ASSERT_EQ(call.writes.size(), 1u);
  server.peer->write_remote(call.writes[0][0], data);
  call.writes[0][0].length = kCount;
  Bytes reply = before;
  append(reply, attributes(4u << 20));
  server.peer->send(call.with(reply));
  Bytes whole = before;
  append(whole, data);
  append(whole, attributes(1u << 20));
  EXPECT_EQ(server.answer(), whole);
}

TEST(ReverseGatewayServer, V1_176_V2_150_F_28_nothing_is_reduced_under_integrity_or_privacy) {
  Bytes read = opaque(pattern(32, 5));
  append(read, words({0, 0, 65536}));
  Bytes write = read;
  append(write, words({2}));
  append(write, opaque(pattern(65536, 3)));
  for (const std::uint32_t version : {1u, 2u})
    for (const std::uint32_t service : {1u, 2u, 3u}) {  // authentication alone, integrity, privacy
      SCOPED_TRACE("version " + std::to_string(version) + ", service " + std::to_string(service));
      const bool reduces = service == 1;
      RawServer writes(version);
      writes.client->send_record(gss_call(service, ulb::kNfs3Write, write));
      const rpcrdma::ChunkLists of_write = writes.next_lists();
      EXPECT_EQ(of_write.writes.size(), 0u);
      ASSERT_GT(of_write.reads.size(), 0u);
      for (std::uint32_t i = 0; i < of_write.reads.size(); ++i)
        EXPECT_EQ(of_write.reads[i].position != rpcrdma::Position{0}, reduces);
      RawServer reads(version);
      reads.client->send_record(gss_call(service, ulb::kNfs3Read, read));
      const rpcrdma::ChunkLists of_read = reads.next_lists();
      EXPECT_EQ(of_read.writes.size(), reduces ? 1u : 0u);
      EXPECT_EQ(of_read.reads.size(), 0u);
      EXPECT_EQ(of_read.reply.has_value(), !reduces);
    }
}

TEST(ReverseGatewayServer, V1_118_the_reply_of_a_signed_call_is_bounded_by_its_arguments) {
  Bytes read = opaque(pattern(32, 5));
  append(read, words({0, 0, 65536}));
  for (const std::uint32_t version : {1u, 2u}) {
    SCOPED_TRACE(version);
    RawServer server(version);
    server.client->send_record(gss_call(2, ulb::kNfs3GetAttr, opaque(pattern(32, 5))));
    EXPECT_FALSE(server.next_lists().reply.has_value());
    RawServer reads(version);
    reads.client->send_record(gss_call(2, ulb::kNfs3Read, read));
    const rpcrdma::ChunkLists signed_read = reads.next_lists();
    ASSERT_TRUE(signed_read.reply.has_value());
    EXPECT_GT(signed_read.reply->capacity(), 65536u);
    EXPECT_LT(signed_read.reply->capacity(), 68000u);
    // The gateway cannot read the reply limit of encrypted arguments.
    for (const std::uint32_t most : {1u << 20, 4u << 20}) {
      RawServer encrypted(version, most);
      encrypted.client->send_record(gss_call(3, ulb::kNfs3GetAttr, opaque(pattern(32, 5))));
      const rpcrdma::ChunkLists of_encrypted = encrypted.next_lists();
      ASSERT_TRUE(of_encrypted.reply.has_value());
      EXPECT_EQ(of_encrypted.reply->capacity(), tcp::record_bytes(most));
    }
  }
}

TEST(ReverseGatewayServer, a_signed_body_that_is_none_has_any_reply) {
  for (const std::uint32_t length : {0u, 3u, 4u, 36u, 0xFFFFFFFFu}) {
    SCOPED_TRACE(length);
    RawServer server;
    Bytes call = gss_call(2, ulb::kNfs3GetAttr, {});
    call.resize(call.size() - 4 - 4 - 32);  // removes the body and the checksum
    append(call, words({length}));
    server.client->send_record(call);
    ASSERT_TRUE(server.until([&] { return server.peer && !server.peer->inbox.empty(); }));
  }
}

TEST(ReverseGatewayServer, V1_110_a_chunk_that_contradicts_its_count_costs_the_call) {
  for (const std::uint32_t length : {1u, kCount - 4, kCount - 1}) {
    RawServer server;
    server.read(7);
    RawCall call = server.next_call();
    call.writes[0][0].length = length;
    server.peer->send(call.with(RawServer::results(7, kCount)));
    server.expect_disconnected();
    server.expect_healthy();
    EXPECT_EQ(server.side.count(Counter::calls_lost), 1u);
    EXPECT_EQ(server.side.count(Counter::clients_reset), 1u);
  }
}

TEST(ReverseGatewayServer, V1_109_F_07_the_chunk_of_a_failed_read_does_not_matter) {
  RawServer server;
  server.read(7);
  const RawCall call = server.next_call();
  server.peer->send(call.with(success(7, words({70, 0}))));  // NFS3ERR_STALE, with the chunk as offered
  EXPECT_EQ(server.answer(), success(7, words({70, 0})));
  server.expect_healthy();
}

TEST(ReverseGatewayServer, data_without_a_place_in_the_reply_costs_the_call) {
  RawServer server;
  server.read(7);
  const RawCall call = server.next_call();
  server.peer->send(call.with(success(7, words({0, 0, kCount}))));  // ends before the count of its data
  server.expect_disconnected();
  server.expect_healthy();
}

TEST(ReverseGatewayServer,
     V1_027_the_servers_own_refusal_is_an_answer_and_what_is_none_costs_the_connection) {
  RawServer server;
  server.read(7);
  RawCall call = server.next_call();
  call.writes.clear();
  server.peer->send(call.with(words({7, 1, 0, 0, 400, 0, 0})));  // a verifier beyond the message
  server.expect_disconnected();
  server.read(7);
  call = server.next_call();
  server.peer->send(words({7, 1, 8, 4, 2}));  // RDMA_ERROR, ERR_CHUNK
  EXPECT_EQ(server.answer(), kSystemError);
  server.expect_healthy();
  EXPECT_EQ(server.side.count(Counter::failures), 1u);
  EXPECT_EQ(server.side.count(Counter::calls_lost), 1u);
}

TEST(ReverseGatewayServer, V1_152_a_silent_server_is_asked_and_then_connected_to_again) {
  RawServer server;
  server.connect();
  server.read(7);
  RawCall call = server.next_call();
  // The server answers the NULL call, so it is slow but alive.
  for (int i = 0; i < 3; ++i) {
    server.pass(rdma_server::kSilenceNs + 1'000'000'000);
    const RawCall probe = server.next_call();
    EXPECT_NE(probe.xid, 7u);
    EXPECT_EQ(Bytes(server.peer->inbox.back().bytes.end() - 36, server.peer->inbox.back().bytes.end()),
              words({0, 2, ulb::kNfsProgram, 3, 0, 0, 0, 0, 0}));
    server.peer->send(probe.with(success(probe.xid)));
    server.pass(rdma_server::kProbeAnswerNs - 5'000'000'000);
  }
  EXPECT_EQ(server.side.connections.size(), 1u);
  // The server does not answer it, so the call is sent again over another connection.
  server.pass(rdma_server::kSilenceNs + 1'000'000'000);
  server.next_call();
  server.pass(rdma_server::kProbeAnswerNs + 1'000'000'000);
  ASSERT_TRUE(server.until([&] { return server.side.connections.size() == 2; }));
  EXPECT_EQ(server.side.hung_up, std::vector{rpcrdma::CloseReason::Silent});
  call = server.next_call();
  EXPECT_EQ(call.xid, 7u);
  call.writes.clear();
  server.peer->send(call.with(success(7, words({70, 0}))));
  EXPECT_EQ(server.answer(), success(7, words({70, 0})));
  EXPECT_EQ(server.side.count(Counter::probes), 4u);
  EXPECT_EQ(server.side.count(Counter::server_resets), 1u);
  EXPECT_EQ(server.side.count(Counter::calls_lost), 0u);
}

TEST(ReverseGatewayServer, a_silent_server_is_asked_though_all_other_credits_are_out) {
  RawServer server;
  server.connect();
  const std::uint32_t calls = server.side.options.calls;
  for (std::uint32_t i = 0; i < calls; ++i) server.read(100 + i);
  for (std::uint32_t i = 0; i + 1 < calls; ++i) server.next_call();
  server.pass(rdma_server::kSilenceNs + 1'000'000'000);
  EXPECT_GE(server.next_call().xid, 1u << 31);
}

TEST(ReverseGatewayServer, a_server_that_gave_no_credit_to_ask_with_is_waited_for_longer) {
  RawServer server;
  server.read(7);  // with the only credit
  server.next_call();
  server.pass(rdma_server::kSilenceNs + 1'000'000'000);
  server.pass((rdma_server::kUnaskedPatience - 1) * rdma_server::kProbeAnswerNs);
  EXPECT_EQ(server.side.count(Counter::probes), 1u);
  EXPECT_EQ(server.peer->inbox.size(), 1u);
  EXPECT_EQ(server.side.count(Counter::server_resets), 0u);
  server.pass(rdma_server::kProbeAnswerNs);
  EXPECT_EQ(server.side.count(Counter::server_resets), 1u);
  ASSERT_TRUE(server.until([&] { return server.side.connections.size() == 2; }));
  EXPECT_EQ(server.next_call().xid, 7u);
}

TEST(ReverseGatewayServer, the_silence_before_a_first_call_is_none) {
  RawServer server;
  server.pass(3'600'000'000'000);
  server.read(7);
  server.next_call();
  server.pass(rdma_server::kSilenceNs / 2);
  EXPECT_EQ(server.side.count(Counter::probes), 0u);
}

TEST(ReverseGatewayServer, a_silent_server_without_calls_is_left_alone) {
  RawServer server;
  server.connect();
  for (int i = 0; i < 4; ++i) server.pass(rdma_server::kSilenceNs + rdma_server::kProbeAnswerNs);
  EXPECT_EQ(server.side.count(Counter::probes), 0u);
  EXPECT_EQ(server.side.connections.size(), 1u);
}

TEST(ReverseGatewayServer, a_signed_call_is_not_sent_again_by_us_its_client_signs_it_anew) {
  RawServer server;
  server.connect();
  server.client->send_record(gss_call(1, ulb::kNfs3GetAttr, opaque(pattern(32, 5))));
  EXPECT_EQ(server.next_call().xid, 7u);
  server.side.connections.at(0)->close(rpcrdma::CloseReason::TransportError);
  server.expect_disconnected();
  EXPECT_EQ(server.side.connections.size(), 1u);
  EXPECT_EQ(server.side.count(Counter::calls_lost), 1u);
  server.expect_healthy();
  EXPECT_EQ(server.side.connections.size(), 2u);
}

TEST(ReverseGatewayServer, replies_with_other_XIDs_go_to_nobody) {
  RawServer server;
  server.read(7);
  RawCall call = server.next_call();
  call.writes.clear();
  for (const std::uint32_t xid : {0u, 8u, 0xFFFFFFFFu}) {
    call.xid = xid;
    server.peer->send(call.with(success(xid, words({70, 0}))));
  }
  for (int i = 0; i < 200; ++i) server.turn();
  EXPECT_EQ(server.client->received(), 0u);
  call.xid = 7;
  server.peer->send(call.with(success(7, words({70, 0}))));
  EXPECT_EQ(server.answer(), success(7, words({70, 0})));
}

TEST(ReverseGatewayServer, V1_200_more_calls_than_a_client_may_have_are_refused) {
  RawServer server;
  server.read(7);
  RawCall call = server.next_call();
  call.writes.clear();
  server.peer->send(call.with(success(7, words({70, 0}))));
  server.answer();
  const std::size_t before = server.peer->inbox.size();
  for (std::uint32_t i = 0; i < 4; ++i)
    server.peer->send(RawCall{.xid = 100 + i}.with(conformance::rpc_call(100 + i, 0x40000000, 1, 1)));
  for (int i = 0; i < 4; ++i) server.answer();
  server.client->send_record(success(101, words({5})));
  ASSERT_TRUE(server.until([&] { return server.peer->inbox.size() > before; }));
  const Bytes& reply = server.peer->inbox.back().bytes;
  EXPECT_EQ(word_at(reply, 0), 101u);
  EXPECT_EQ(Bytes(reply.end() - 28, reply.end()), success(101, words({5})));
}

}  // namespace
}  // namespace sluice::tcp_clients_test
