// SPDX-License-Identifier: Apache-2.0
//
// Version 2: the first messages of a connection, the order of senders, and where messages are divided.
#include <gtest/gtest.h>

#include <optional>

#include "tests/conformance/v2_client.h"

namespace sluice::conformance::v2 {
namespace {

// --- First messages

/// True for the first set of properties, 1 to 5.
bool is_greeting(const Bytes& message) {
  return word_at(message, 3) == kConnProp && word_at(message, 5) == 5;
}
/// True for a set that holds property 6 only.
bool is_host_authentication(const Bytes& message) {
  return word_at(message, 3) == kConnProp && word_at(message, 5) == 1 && word_at(message, 6) == 6;
}

Client client_that_begins_with_a_call(bool announce = true) {
  LabOptions options = Client::defaults();
  options.connection.version2.greeting = rpcrdma::Greeting::Call;
  options.connection.version2.announce = announce;
  return Client(options);
}

TEST(V2Opening, V2_058_properties_go_before_grants_and_replies) {
  Server lab;
  // ERR_VERS uses the initial credit of the server.
  EXPECT_EQ(lab.exchange(words({9, 3, 32, 0})).size(), 1u);
  EXPECT_TRUE(lab.exchange(null_call(0x20, 0x00400000)).empty());
  auto inbox = lab.exchange(grant(1));
  ASSERT_EQ(inbox.size(), 1u);
  EXPECT_TRUE(is_greeting(inbox[0].bytes));
  inbox = lab.exchange(grant(1));
  ASSERT_EQ(inbox.size(), 1u);
  EXPECT_TRUE(is_success(inbox[0].bytes, 0x20));
}

TEST(V2Opening, V2_058_properties_wait_for_room_in_the_send_queue) {
  LabOptions options = Server::defaults();
  options.engine.capacity.send_depth = 1;
  Server lab(options);
  lab.peer->send(words({9, 3, 32, 0}));
  const auto inbox = lab.exchange(null_call(0x20, 0x00400005));
  ASSERT_EQ(inbox.size(), 3u);
  EXPECT_EQ(word_at(inbox[0].bytes, 3), kError);
  EXPECT_TRUE(is_greeting(inbox[1].bytes));
  EXPECT_TRUE(is_success(inbox[2].bytes, 0x20));
  EXPECT_GT(lab.counters().waits_send_queue, 0u);
}

TEST(V2Opening, V2_006_V2_058_behind_a_first_call_come_properties_and_then_all_else) {
  Client lab = client_that_begins_with_a_call();
  EXPECT_TRUE(lab.connection->send_host_authentication(Bytes(64)));
  lab.settle();
  EXPECT_TRUE(lab.sent().empty());
  const auto first = lab.submit_null();
  const auto second = lab.submit_null();
  lab.settle();
  ASSERT_EQ(lab.sent().size(), 1u);
  EXPECT_EQ(word_at(lab.sent()[0], 0), *first);
  lab.answer(success(*first, 0x00400001));
  ASSERT_EQ(lab.sent().size(), 1u);
  EXPECT_TRUE(is_greeting(lab.sent()[0]));
  lab.answer(grant(1));
  ASSERT_EQ(lab.sent().size(), 1u);
  EXPECT_TRUE(is_host_authentication(lab.sent()[0]));
  lab.answer(grant(1));
  ASSERT_EQ(lab.sent().size(), 1u);
  EXPECT_EQ(word_at(lab.sent()[0], 0), *second);
}

TEST(V2Opening, V2_044_V2_058_the_credit_of_an_error_is_for_properties_not_for_the_callers_next_call) {
  Client lab = client_that_begins_with_a_call();
  std::optional<std::uint32_t> second;
  lab.on_reply = [&](const rpcrdma::Reply&) {
    if (!second) second = lab.submit_null();
  };
  const auto first = lab.submit_null();
  lab.settle();
  lab.answer(error(*first, 10));
  ASSERT_TRUE(second);
  ASSERT_EQ(lab.sent().size(), 1u);
  EXPECT_TRUE(is_greeting(lab.sent()[0]));
  lab.answer(grant(1));
  ASSERT_EQ(lab.sent().size(), 1u);
  EXPECT_EQ(word_at(lab.sent()[0], 0), *second);
}

TEST(V2Opening, V2_007_a_call_that_cannot_go_first_follows_the_properties) {
  Client lab = client_that_begins_with_a_call();
  const auto xid = lab.submit({.payload = name_call(2000), .max_reply_bytes = 64});
  lab.settle();
  ASSERT_EQ(lab.sent().size(), 1u);
  EXPECT_TRUE(is_greeting(lab.sent()[0]));
  lab.answer(grant(1));
  ASSERT_EQ(lab.sent().size(), 1u);
  EXPECT_EQ(word_at(lab.sent()[0], 0), *xid);
}

TEST(V2Opening, a_client_that_announces_nothing_has_no_properties_behind_its_first_call) {
  Client lab = client_that_begins_with_a_call(false);
  const auto first = lab.submit_null();
  const auto second = lab.submit_null();
  lab.settle();
  ASSERT_EQ(lab.sent().size(), 1u);
  lab.answer(success(*first, 0x00400001));
  ASSERT_EQ(lab.sent().size(), 1u);
  EXPECT_EQ(word_at(lab.sent()[0], 0), *second);
}

// --- Reverse calls and replies

/// Our engine as the server that calls back.
class CallingServer : public Server {
 public:
  CallingServer() : Server(with_requests()) {
    requester_for_next_connection = callbacks_.get();
    reconnect();
  }
  ~CallingServer() { peer->owned_qp.reset(), settle(); }

  /// Sends the client's first message, with these two numbers as its credit word. The server's greeting uses
  /// no new credit.
  void hello_with(std::uint32_t limit, std::uint32_t credits) {
    peer->send(Header{.xid = 1, .credit = limit << 16 | credits, .type = kConnProp}.then({0}));
    settle();
    peer->inbox.clear();
    ASSERT_EQ(connection->flow_control().balance(), static_cast<std::int32_t>(credits));
  }
  void call_back(std::uint32_t payload_bytes = 40) {
    Bytes payload = rpc_call(0, 0x40000000, 1, 0);
    payload.resize(payload_bytes);
    EXPECT_TRUE(callbacks_->submit({.payload = payload, .max_reply_bytes = 64}));
    settle();
  }
  /// Returns the number of calls received since the last call of this function; drops replies.
  std::size_t calls() {
    std::size_t count = 0;
    for (const Bytes& message : answers()) count += word_at(message, 4) & kResponse ? 0 : 1;
    peer->inbox.clear();
    return count;
  }

 private:
  static LabOptions with_requests() {
    LabOptions options = defaults();
    options.engine.capacity.requests = options.connection.credits_requested = 8;
    return options;
  }
  std::unique_ptr<rpcrdma::Requester> callbacks_ = std::make_unique<rpcrdma::Requester>(
      engine->requester_context(), *device,
      rpcrdma::RequesterConfig{.requests = 8, .credits_requested = 8, .reverse = true});
};

TEST(V2ReverseCredits, V2_139_the_last_credit_is_for_replies) {
  CallingServer lab;
  lab.hello_with(3, 1);
  lab.call_back();
  EXPECT_EQ(lab.calls(), 0u);
  EXPECT_GT(lab.counters().waits_credit, 0u);
  lab.exchange(grant(1));
  EXPECT_EQ(lab.calls(), 1u);
  EXPECT_EQ(lab.connection->flow_control().balance(), 1);
  EXPECT_TRUE(is_success(lab.answer(null_call(0x20, 0x00030000)), 0x20));
}

TEST(V2ReverseCredits, V2_139_a_client_with_a_window_of_two_is_called_while_no_reply_is_due) {
  CallingServer lab;
  lab.hello_with(2, 1);
  lab.exchange(Header{.xid = 0x20, .credit = 0x00020000}.with(test_call(0x20, TestService::kLater)));
  lab.call_back();
  EXPECT_EQ(lab.calls(), 0u);
  lab.service->complete_later();
  lab.settle();
  EXPECT_EQ(lab.calls(), 0u);
  EXPECT_EQ(lab.connection->flow_control().balance(), 0);
  lab.exchange(Header{.xid = 0, .credit = 0x00020001, .type = kNoMsg}.bytes());
  EXPECT_EQ(lab.calls(), 1u);
}

TEST(V2ReverseCredits, V2_085_V2_139_the_parts_of_a_reverse_call_may_use_the_last_credit) {
  CallingServer lab;
  lab.hello_with(64, 2);
  lab.call_back(6000);
  EXPECT_EQ(lab.calls(), 2u);
  EXPECT_EQ(lab.connection->flow_control().balance(), 0);
}

// --- Length of parts

TEST(V2Parts, V2_047_no_send_is_longer_than_the_device_sends) {
  LabOptions options = Server::defaults();
  options.connection.version2.parameters.max_send_bytes = 1u << 20;
  options.engine.reply_buffer_bytes = 256u << 10;
  Server lab(options);
  const std::uint32_t most = lab.device->limits().max_send_bytes;
  ASSERT_LT(most, 1u << 20);
  EXPECT_EQ(lab.connection->own_parameters().max_send_bytes, most);
  lab.peer->send(Header{.xid = 1, .credit = 0x00400100, .type = kConnProp}.then({1, 2, 4, 1u << 20}));
  lab.settle();
  EXPECT_EQ(lab.connection->agreement().send_bytes, most);
  lab.peer->inbox.clear();
  const auto parts = lab.ask(Header{.xid = 2}.with(test_call(2, TestService::kList, {2 * most})));
  ASSERT_EQ(parts.size(), 3u);
  EXPECT_EQ(parts[0].size(), most / 4 * 4);
}

/// Returns the payload of a continued message. Checks that each part holds whole XDR units and is no longer
/// than a Send.
Bytes joined(const std::vector<Bytes>& parts, std::size_t last_header_bytes) {
  Bytes payload;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const bool last = i + 1 == parts.size();
    EXPECT_EQ(word_at(parts[i], 4), last ? kResponse : kResponse | kMore);
    EXPECT_LE(parts[i].size(), 4096u);
    const auto body = std::span(parts[i]).subspan(last ? last_header_bytes : 36);
    EXPECT_GT(body.size(), 0u);
    EXPECT_EQ(body.size() % 4, 0u);
    append(payload, body);
  }
  return payload;
}

TEST(V2Parts, V2_089_V2_093_the_part_with_the_chunks_is_not_empty) {
  Server lab;
  lab.hello();
  const auto memory = lab.peer->expose(4096, rdma::kRemoteWrite);
  std::vector<rpcrdma::Segment> chunk;
  for (std::uint32_t i = 0; i < 16; ++i) chunk.push_back(part(memory.segment, 256 * i, 256));
  constexpr std::uint32_t kLastHeader = 36 + 8 + 16 * 16;
  // The payload has 24 bytes of RPC header, then status and count, then status and count with the data that
  // stays inline.
  for (const std::uint32_t payload : {4096u - 36, 4096u - kLastHeader, 4096u - kLastHeader + 4}) {
    lab.peer->inbox.clear();
    const auto parts = lab.ask(Header{.xid = payload, .writes = {chunk}}.with(
        test_call(payload, TestService::kPair, {4096, payload - 40})));
    ASSERT_EQ(parts.size(), payload == 4096 - kLastHeader ? 1u : 2u) << payload;
    const Bytes reply = joined(parts, kLastHeader);
    ASSERT_EQ(reply.size(), payload);
    EXPECT_EQ(word_at(reply, 9), payload - 40);
  }
}

/// Builds results of many pieces that are not adjacent.
class PiecesService final : public service::Service {
 public:
  static constexpr std::uint32_t kPieces = 46;

  PiecesService(rdma::Device& device, std::uint32_t piece_bytes)
      : memory_(device.allocate_memory(kPieces * kStride)), piece_bytes_(piece_bytes) {
    fill_pattern(memory_.bytes, 5);
  }
  const service::Binding& binding() const noexcept override { return binding_; }
  service::Execution execute(service::Call& call) noexcept override {
    call.results().u32(kPieces * piece_bytes_);
    for (std::uint32_t i = 0; i < kPieces; ++i)
      call.add_result_piece({memory_.bytes.data() + kStride * i, piece_bytes_, memory_.lkey});
    call.add_result_item(kPieces * piece_bytes_);
    call.complete(rpc::AcceptStat::Success);
    return service::Execution::Started;
  }
  Bytes data() const {
    Bytes all;
    for (std::uint32_t i = 0; i < kPieces; ++i) append(all, memory_.bytes.subspan(kStride * i, piece_bytes_));
    return all;
  }

 private:
  static constexpr std::size_t kStride = 1024;
  static constexpr service::ProcedureBinding kProcedures[] = {{.eligible_results = 1}};
  const service::Binding binding_{.program = kTestProgram + 7, .version = 1, .procedures = kProcedures};
  const rdma::MemoryRegion memory_;
  const std::uint32_t piece_bytes_;
};

TEST(V2Parts, V2_084_V2_098_results_in_more_pieces_than_a_send_has_room_for) {
  for (const std::uint32_t bytes : {4u, 6u, 99u, 1000u}) {
    Server lab;
    PiecesService pieces(*lab.device, bytes);
    lab.engine->add_service(pieces);
    lab.reconnect();
    lab.hello();
    const auto parts = lab.ask(Header{.xid = 3}.with(test_call(3, 0, {}, kTestProgram + 7)));
    EXPECT_GE(parts.size(), 3u);
    const Bytes reply = joined(parts, 36);
    const Bytes data = pieces.data();
    ASSERT_EQ(reply.size(), 28 + xdr::padded(data.size())) << bytes;
    EXPECT_EQ(word_at(reply, 6), data.size());
    EXPECT_TRUE(std::equal(data.begin(), data.end(), reply.begin() + 28)) << bytes;
    for (const Op& op : lab.log.ops()) EXPECT_EQ(op.empty_pieces, 0u) << bytes;
  }
}

// --- Room for parts

TEST(V2Parts, V2_084_parts_wait_for_room_in_the_send_queue) {
  LabOptions options = Server::defaults();
  options.engine.capacity.send_depth = 4;
  Server lab(options);
  lab.hello();
  const auto parts = lab.ask(Header{.xid = 5}.with(test_call(5, TestService::kList, {40000})));
  EXPECT_EQ(parts.size(), 10u);
  const Bytes reply = joined(parts, 36);
  ASSERT_EQ(reply.size(), 40028u);
  EXPECT_TRUE(has_pattern(std::span(reply).subspan(28), 1));
  EXPECT_GT(lab.counters().waits_send_queue, 0u);
}

TEST(V2Parts, V2_042_V2_084_a_grant_that_finds_no_buffer_is_not_sent) {
  LabOptions options = Server::defaults();
  options.engine.reply_buffer_bytes = 256u << 10;
  Server lab(options);
  lab.hello();
  lab.device->hold = [](const rdma::WorkCompletion& wc) {
    return rpcrdma::WrId::decode(wc.wr_id).kind == rpcrdma::WrKind::ControlSent;
  };
  lab.ask(Header{.xid = 5}.with(test_call(5, TestService::kList, {200000})));
  ASSERT_EQ(lab.answers().size(), rpcrdma::v2::kControlBuffers);
  // These messages leave the client only half of its window.
  while (lab.connection->flow_control().unused() > 8) lab.exchange(grant(1));
  EXPECT_EQ(lab.counters().grants_sent, 0u);
  EXPECT_TRUE(lab.connection->is_open());
  lab.device->hold = nullptr;
  lab.settle();
  EXPECT_GT(lab.connection->flow_control().unused(), 32);
  EXPECT_TRUE(lab.alive2());
}

TEST(V2Parts, V2_084_parts_behind_more_pieces_than_the_stage_has_room_for) {
  constexpr std::uint32_t kCalls = 21;  // 46 pieces for the chunk of each and one for its Send: 987 of 1024
  Server lab;
  PiecesService pieces(*lab.device, 6);
  lab.engine->add_service(pieces);
  lab.reconnect();
  lab.hello();
  const Bytes data = pieces.data();
  const auto memory = lab.peer->expose(kCalls * 512, rdma::kRemoteWrite);
  for (std::uint32_t i = 0; i < kCalls; ++i)
    lab.peer->send(Header{.xid = 100 + i, .writes = {{part(memory.segment, 512 * i, 512)}}}.with(
        test_call(100 + i, 0, {}, kTestProgram + 7)));
  const auto answers = lab.ask(Header{.xid = 3}.with(test_call(3, 0, {}, kTestProgram + 7)));
  ASSERT_GT(answers.size(), kCalls);
  const Bytes reply = joined({answers.begin() + kCalls, answers.end()}, 36);
  ASSERT_EQ(reply.size(), 28 + data.size());
  EXPECT_TRUE(std::equal(data.begin(), data.end(), reply.begin() + 28));
  for (std::uint32_t i = 0; i < kCalls; ++i)
    EXPECT_TRUE(std::equal(data.begin(), data.end(), memory.bytes.begin() + 512 * i)) << i;
}

}  // namespace
}  // namespace sluice::conformance::v2
