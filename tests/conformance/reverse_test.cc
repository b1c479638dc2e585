// SPDX-License-Identifier: Apache-2.0
//
// Requirement rows 2.11 and 2.12: calls from the server to the client on the same connection, and RPCSEC_GSS
// carried.
#include <gtest/gtest.h>

#include "tests/conformance/raw_call.h"
#include "tests/golden/v1_vectors.h"

#include <algorithm>

namespace sluice::conformance {
namespace {

using rpcrdma::CallStatus;

/// Options of a client that serves two concurrent reverse calls.
LabOptions with_reverse_service() {
  LabOptions options;
  options.engine.capacity.call_slots = 2;
  options.connection.credit_grant = 2;
  return options;
}
LabOptions without_reverse_service() {
  LabOptions options;
  options.connection.credit_grant = 0;
  return options;
}
Bytes reverse_call(std::uint32_t xid, std::uint32_t procedure = 0,
                   std::initializer_list<std::uint32_t> args = {}) {
  return RawCall{.xid = xid, .credits = 4}.with(test_call(xid, procedure, args));
}

TEST(ReverseClient, V1_157_V1_158_V1_160_V1_166_F_27_a_call_with_a_pending_xid_is_a_call) {
  ClientLab lab(with_reverse_service());
  lab.submit_null();
  lab.settle();
  const std::uint32_t xid = word_at(lab.peer->inbox.at(0).bytes, 0);
  lab.peer->send(reverse_call(xid));  // E10: the same XID as the forward call
  lab.settle();
  ASSERT_EQ(lab.peer->inbox.size(), 2u);
  EXPECT_EQ(lab.peer->inbox[1].bytes, ClientLab::success(xid, 2));  // E10r: two reverse credits
  EXPECT_TRUE(lab.finished.empty());
  EXPECT_EQ(static_cast<std::uint32_t>(lab.requester->granted()), 1u);  // the call's credit word is a request
  lab.peer->send(ClientLab::success(xid, 8));
  lab.settle();
  ASSERT_EQ(lab.finished.size(), 1u);
  EXPECT_EQ(lab.finished[0].status, CallStatus::Ok);
}

TEST(ReverseClient, V1_159_V1_163_F_27_receives_for_reverse_calls_come_on_top) {
  ClientLab lab(with_reverse_service());
  EXPECT_EQ(lab.log.count(OpKind::PostReceive), 32u + 2u + rpcrdma::kSpareReceives);
  for (int i = 0; i < 40; ++i) lab.submit_null();
  lab.settle();
  lab.peer->send(ClientLab::success(word_at(lab.peer->inbox.at(0).bytes, 0), 32));
  lab.settle();
  EXPECT_EQ(lab.requester->outstanding(), 32u);  // all forward credits are in use
  const std::size_t before = lab.peer->inbox.size();
  lab.peer->send(reverse_call(1));
  lab.peer->send(reverse_call(2));
  lab.settle();
  EXPECT_EQ(lab.peer->inbox.size(), before + 2);
  EXPECT_FALSE(lab.peer->failed);
}

TEST(ReverseClient, V1_167_A_27_reverse_calls_with_chunks_are_refused) {
  ClientLab lab(with_reverse_service());
  const auto memory = lab.peer->expose(64, rdma::kRemoteWrite);
  lab.peer->send(RawCall{.xid = 7, .writes = {{memory.segment}}}.with(test_call(7, 0)));
  lab.peer->send(RawCall{.xid = 8, .proc = 1, .reads = {{0, memory.segment}}}.header());
  lab.settle();
  ASSERT_EQ(lab.peer->inbox.size(), 2u);
  EXPECT_TRUE(is_err_chunk(lab.peer->inbox[0].bytes, 7));
  EXPECT_TRUE(is_err_chunk(lab.peer->inbox[1].bytes, 8));
  EXPECT_EQ(lab.engine->counters().reverse_chunks_refused, 2u);
}

TEST(ReverseClient, V1_169_a_reverse_reply_that_is_too_large_is_an_error) {
  ClientLab lab(with_reverse_service());
  lab.peer->send(reverse_call(9, TestService::kList, {2000}));
  lab.settle();
  ASSERT_EQ(lab.peer->inbox.size(), 1u);
  EXPECT_TRUE(is_err_chunk(lab.peer->inbox[0].bytes, 9));
  lab.peer->send(reverse_call(10));
  lab.settle();
  EXPECT_EQ(lab.peer->inbox.size(), 2u);
}

TEST(ReverseClient, V1_171_V1_026_a_client_without_reverse_service_survives_a_call) {
  ClientLab lab(without_reverse_service());
  lab.submit_null();
  lab.settle();
  const std::uint32_t xid = word_at(lab.peer->inbox.at(0).bytes, 0);
  for (int i = 0; i < 20; ++i) lab.peer->send(bytes_of(golden::kE10));
  lab.peer->send(reverse_call(xid));
  for (const auto vector : {std::span<const std::uint32_t>(golden::kN3), {golden::kN4}, {golden::kN2}})
    lab.peer->send(bytes_of(vector));
  lab.settle();
  EXPECT_EQ(lab.peer->inbox.size(), 1u);
  EXPECT_TRUE(lab.finished.empty());
  lab.peer->send(ClientLab::success(xid, 1));
  lab.settle();
  ASSERT_EQ(lab.finished.size(), 1u);
  EXPECT_EQ(lab.finished[0].status, CallStatus::Ok);
}

TEST(ReverseClient, V1_200_callbacks_during_forward_load) {
  ClientLab lab(with_reverse_service());
  for (int i = 0; i < 10; ++i) lab.submit_null();
  lab.settle();
  for (std::uint32_t i = 0; i < 10; ++i) {
    lab.peer->send(reverse_call(0x100 + i));
    lab.peer->send(ClientLab::success(word_at(lab.peer->inbox.at(2 * i).bytes, 0), 1));
    lab.settle();
  }
  EXPECT_EQ(lab.finished.size(), 10u);
  EXPECT_EQ(lab.service->executed.size(), 10u);
}

/// Our engine as the server that calls back. The raw peer is the client.
struct CallingServer : ServerLab {
  explicit CallingServer(LabOptions lab_options = {}) : ServerLab(with_requests(std::move(lab_options))) {
    callbacks = std::make_unique<rpcrdma::Requester>(
        engine->requester_context(), *device,
        rpcrdma::RequesterConfig{.requests = 16, .credits_requested = 4, .reverse = true});
    callbacks->set_peer_ready(false);
    reconnect_with_callbacks();
  }
  ~CallingServer() { peer->owned_qp.reset(), settle(); }

  static LabOptions with_requests(LabOptions wanted) {
    wanted.engine.capacity.requests = 4;
    wanted.connection.credits_requested = 4;
    return wanted;
  }

  void reconnect_with_callbacks() {
    requester_for_next_connection = callbacks.get();
    reconnect();
  }
  rpcrdma::SubmittedXid call_back(std::size_t payload_bytes = 40) {
    Bytes payload = rpc_call(0, 0x40000000, 1, 0);
    payload.resize(payload_bytes);
    return callbacks->submit({.payload = payload,
                              .max_reply_bytes = 64,
                              .completion =
                                  [](void* context, const rpcrdma::Reply& reply) noexcept {
                                    static_cast<CallingServer*>(context)->finished.push_back(reply.status());
                                  },
                              .context = this});
  }
  std::unique_ptr<rpcrdma::Requester> callbacks;
  std::vector<CallStatus> finished;
};

TEST(ReverseServer, V1_151_V1_170_nothing_is_called_before_the_peer_is_ready) {
  CallingServer lab;
  for (int i = 0; i < 5; ++i) lab.call_back();
  lab.settle();
  EXPECT_TRUE(lab.peer->inbox.empty());
  lab.callbacks->set_peer_ready(true);
  lab.settle();
  EXPECT_EQ(lab.peer->inbox.size(), 1u);
}

TEST(ReverseServer, V1_161_V1_162_V1_164_V1_165_one_reverse_credit_then_what_the_client_grants) {
  CallingServer lab;
  EXPECT_EQ(lab.log.all(OpKind::PostReceive).size() % (64 + 4 + rpcrdma::kSpareReceives), 0u);
  lab.callbacks->set_peer_ready(true);
  for (int i = 0; i < 5; ++i) lab.call_back();
  lab.settle();
  ASSERT_EQ(lab.peer->inbox.size(), 1u);
  // The call equals E10 except for the XID.
  Bytes expected = bytes_of(golden::kE10);
  const std::uint32_t xid = word_at(lab.peer->inbox[0].bytes, 0);
  xdr::store_u32(expected.data(), xid);
  xdr::store_u32(expected.data() + 28, xid);
  EXPECT_EQ(lab.peer->inbox[0].bytes, expected);
  lab.peer->send(ClientLab::success(xid, 2));
  lab.settle();
  EXPECT_EQ(lab.peer->inbox.size(), 3u);
  EXPECT_EQ(lab.callbacks->outstanding(), 2u);
}

TEST(ReverseServer, V1_159_V1_160_directions_are_accounted_apart) {
  LabOptions options;
  options.connection.credit_grant = 2;
  CallingServer lab(options);
  lab.callbacks->set_peer_ready(true);
  for (std::uint32_t xid = 1; xid <= 2; ++xid)
    lab.peer->send(RawCall{.xid = xid}.with(test_call(xid, TestService::kLater)));
  lab.call_back();
  lab.settle();
  ASSERT_EQ(lab.peer->inbox.size(), 1u);  // forward credits are in use, the callback is sent
  lab.peer->send(ClientLab::success(word_at(lab.peer->inbox[0].bytes, 0), 1));
  lab.settle();
  EXPECT_EQ(lab.finished.size(), 1u);
  lab.service->complete_later();
  lab.settle();
  EXPECT_EQ(lab.peer->inbox.size(), 3u);
}

TEST(ReverseServer, V1_168_an_oversize_callback_fails_locally) {
  CallingServer lab;
  lab.callbacks->set_peer_ready(true);
  lab.call_back(1024 - 28);
  lab.settle();
  ASSERT_EQ(lab.peer->inbox.size(), 1u);
  EXPECT_EQ(lab.peer->inbox[0].bytes.size(), 1024u);
  lab.peer->send(ClientLab::success(word_at(lab.peer->inbox[0].bytes, 0), 4));
  lab.settle();
  lab.call_back(1024 - 28 + 4);
  lab.settle();
  EXPECT_EQ(lab.finished.back(), CallStatus::TooLarge);
  EXPECT_EQ(lab.peer->inbox.size(), 1u);
  EXPECT_TRUE(lab.alive());
}

TEST(ReverseServer, V1_174_an_error_ends_the_callback_that_it_names) {
  CallingServer lab;
  lab.callbacks->set_peer_ready(true);
  lab.call_back();
  lab.settle();
  const std::uint32_t xid = word_at(lab.peer->inbox[0].bytes, 0);
  lab.peer->send(words({xid + 1, 1, 1000, 4, 2}));
  lab.settle();
  EXPECT_TRUE(lab.finished.empty());
  lab.peer->send(words({xid, 1, 1000, 4, 2}));
  lab.settle();
  EXPECT_EQ(lab.finished, std::vector{CallStatus::ChunkError});
  EXPECT_TRUE(lab.alive());
}

TEST(ReverseServer, V1_172_V1_173_a_callback_waits_for_the_client_to_come_back) {
  CallingServer lab;
  lab.callbacks->set_peer_ready(true);
  lab.call_back();
  lab.settle();
  const std::uint32_t xid = word_at(lab.peer->inbox[0].bytes, 0);
  lab.reconnect_with_callbacks();
  ASSERT_EQ(lab.peer->inbox.size(), 1u);
  EXPECT_EQ(word_at(lab.peer->inbox[0].bytes, 0), xid);
  lab.peer->send(ClientLab::success(xid, 1));
  lab.settle();
  EXPECT_EQ(lab.finished, std::vector{CallStatus::Ok});
}

// --- RPCSEC_GSS

/// Flavor 6 with the longest credential and verifier that RFC 5531 allows.
Bytes gss_call(std::uint32_t xid, std::uint32_t procedure) {
  Bytes out = words({xid, 0, 2, kTestProgram, 1, procedure, 6, 400});
  Bytes body(400);
  fill_pattern(body, 6);
  append(out, body);
  append(out, words({6, 400}));
  append(out, body);
  return out;
}

TEST(Gss, V1_175_credentials_and_verifiers_are_carried_whole_also_in_long_calls) {
  ServerLab lab;
  EXPECT_EQ(accept_stat(lab.call(RawCall{.xid = 1}.with(gss_call(1, 0)))), 0u);
  Bytes rpc = gss_call(2, TestService::kName);
  append(rpc, words({600}));
  Bytes name(600);
  append(rpc, name);
  const auto memory = lab.peer->expose(rpc.size(), rdma::kRemoteRead);
  std::copy(rpc.begin(), rpc.end(), memory.bytes.begin());
  const RawCall call{.xid = 2, .proc = 1, .reads = {{0, memory.segment}}};
  const Bytes reply = lab.call(call.header());
  EXPECT_EQ(accept_stat(reply), 0u);
  EXPECT_EQ(word_at(reply, 13), 600u);
  // The requester sends a Long Call when it does not fit.
  ClientLab client;
  client.submit({.payload = rpc, .max_reply_bytes = 64});
  client.settle();
  EXPECT_EQ(word_at(client.peer->inbox.at(0).bytes, 3), 1u);
}

TEST(Gss, V1_177_A_16_F_28_a_protected_call_may_have_a_reply_chunk) {
  // Under integrity or privacy the caller names no items and adds its overhead to the size of the reply.
  ClientLab lab;
  lab.submit({.payload = gss_call(0, TestService::kSource), .max_reply_bytes = 5000});
  lab.settle();
  const auto decoded = rpcrdma::v1::decode(lab.peer->inbox.at(0).bytes);
  EXPECT_TRUE(decoded.header.chunks.writes.empty());
  EXPECT_TRUE(decoded.header.chunks.reply.has_value());
  EXPECT_GE(decoded.header.chunks.reply->capacity(), 5000u);
}

}  // namespace
}  // namespace sluice::conformance
