// SPDX-License-Identifier: Apache-2.0
//
// Version 2: a peer's segments, thresholds, properties and invalidations do not reach the memory of others.
#include <gtest/gtest.h>

#include "tests/conformance/v2_lab.h"

#include <algorithm>

namespace sluice::conformance::v2 {
namespace {

using rpcrdma::CallStatus;
using rpcrdma::CloseReason;

// --- Chunks

TEST(SafetyV2Chunks, V2_083_segments_of_write_and_reply_chunks_do_not_wrap) {
  Server lab;
  lab.hello();
  const auto memory = lab.peer->expose(4096, rdma::kRemoteWrite);
  const std::uint64_t near_end = ~std::uint64_t{0};
  // The first segment has room for all results, so it is the list that is refused, not an access.
  const std::vector<rpcrdma::Segment> wraps = {memory.segment, {memory.segment.handle, 2, near_end}};
  const std::vector<rpcrdma::Segment> ends = {memory.segment, {memory.segment.handle, 2, near_end - 2}};
  struct Form {
    std::vector<std::vector<rpcrdma::Segment>> writes;
    std::optional<std::vector<rpcrdma::Segment>> reply;
    bool taken;
  };
  std::uint32_t xid = 0x100;
  for (const Form& form : {Form{{wraps}, {}, false}, Form{{{memory.segment}, wraps}, {}, false},
                           Form{{}, wraps, false}, Form{{ends}, {}, true}, Form{{}, ends, true}}) {
    ++xid;
    lab.log.clear();
    const Bytes answer = lab.answer(Header{.xid = xid, .writes = form.writes, .reply = form.reply}.with(
        test_call(xid, TestService::kSource, {64})));
    EXPECT_EQ(is_error(answer, xid, 2), !form.taken) << std::hex << xid;
    EXPECT_EQ(lab.log.count(OpKind::PostWrite) > 0, form.taken && !form.writes.empty()) << std::hex << xid;
    ASSERT_TRUE(lab.connection->is_open());
  }
  EXPECT_TRUE(lab.alive2());
}

TEST(SafetyV2Chunks, V2_083_segments_of_read_chunks_do_not_wrap) {
  Server lab;
  lab.hello();
  const auto memory = lab.peer->expose(64, rdma::kRemoteRead);
  const rpcrdma::Segment wraps{memory.segment.handle, 2, ~std::uint64_t{0}};
  const Bytes call = test_call(9, TestService::kSink, {66});
  lab.log.clear();
  EXPECT_TRUE(
      is_error(lab.answer(Header{.xid = 9, .reads = {{44, memory.segment}, {44, wraps}}}.with(call)), 9, 2));
  EXPECT_EQ(lab.log.count(OpKind::PostRead), 0u);
  EXPECT_TRUE(lab.connection->is_open());
  EXPECT_TRUE(lab.alive2());
}

// --- Properties

/// Builds a property set of `bytes` with one unknown property.
Bytes unknown_property(std::uint32_t bytes) {
  Bytes body = words({1, 0x77, bytes - 12});
  body.resize(bytes);
  return body;
}

TEST(SafetyV2Properties, V2_064_D2_25_a_set_of_properties_is_at_most_64_KiB) {
  constexpr std::uint32_t kLimit = 64u << 10;
  constexpr std::size_t kPart = 4000;
  for (const std::uint32_t bytes : {kLimit, kLimit + 4}) {
    Server lab;
    lab.hello();
    ASSERT_GT(lab.engine->assembly_memory().most_bytes(), kLimit + 4);
    const std::uint64_t before = lab.counters().late_properties;
    const Bytes body = unknown_property(bytes);
    for (std::size_t at = 0; at < body.size(); at += kPart) {
      const std::size_t part = std::min(kPart, body.size() - at);
      const std::uint32_t flags = at + part < body.size() ? kMore : 0;
      Bytes message = Header{.xid = 9, .type = kConnProp, .flags = flags}.prefix();
      append(message, std::span(body).subspan(at, part));
      lab.peer->send(message);
      lab.settle();
    }
    const auto answers = lab.answers();
    EXPECT_EQ(lab.counters().late_properties, before + (bytes > kLimit ? 0 : 1));
    ASSERT_EQ(answers.size(), bytes > kLimit ? 1u : 0u);
    if (bytes > kLimit) {
      EXPECT_TRUE(is_error(answers[0], 9, 10));
    }
    EXPECT_EQ(lab.engine->assembly_memory().available(), lab.options.engine.assembly_buffers);
    lab.peer->inbox.clear();
    EXPECT_TRUE(lab.alive2());
    // Our side refuses to send longer properties, too.
    EXPECT_FALSE(lab.connection->send_host_authentication(Bytes(kLimit)));
    EXPECT_EQ(lab.engine->assembly_memory().available(), lab.options.engine.assembly_buffers);
  }
}

class PiecesReadClient : public Client {
 public:
  explicit PiecesReadClient(const LabOptions& chosen = defaults()) : Client(chosen) {
    memory = device->allocate_memory(1u << 18);
  }
  /// Submits a call with one Write chunk of `pieces` pieces of `bytes`; returns the message as sent.
  Bytes read(std::uint32_t bytes, std::uint32_t pieces = 1, rpcrdma::Request more = {},
             std::uint32_t first_offer = 0) {
    std::vector<rdma::Sge> list;
    for (std::uint32_t i = 0; i < pieces; ++i)
      list.push_back({memory.bytes.data() + std::size_t{i} * 2 * bytes, bytes, memory.lkey});
    const rpcrdma::WriteItem item{.pieces = list, .first_offer_bytes = first_offer};
    const Bytes payload = test_call(0, TestService::kSource, {bytes});
    more.payload = payload;
    more.writes = {&item, 1};
    more.max_reply_bytes = 64;
    peer->inbox.clear();
    submit(more);
    settle();
    const auto calls = sent();
    EXPECT_EQ(calls.size(), 1u);
    return calls.empty() ? Bytes{} : calls.front();
  }
  rdma::MemoryRegion memory;
};

TEST(SafetyV2Properties, V2_065_a_largest_segment_of_one_byte_is_taken_as_4096) {
  PiecesReadClient lab;
  lab.answer(Header{.xid = 1, .credit = 0x004000c8, .type = kConnProp}.then({1, 3, 4, 1}));
  EXPECT_EQ(lab.connection->agreement().max_segment_bytes, 4096u);
  EXPECT_EQ(lab.engine->counters().clamped_properties, 1u);
  const Bytes call = lab.read(16384);
  const auto decoded = rpcrdma::v2::decode(call);
  ASSERT_EQ(decoded.header.chunks.writes.size(), 1u);
  const rpcrdma::WriteChunk chunk = *decoded.header.chunks.writes.begin();
  ASSERT_EQ(chunk.size(), 4u);
  for (std::uint32_t i = 0; i < 4; ++i) EXPECT_EQ(chunk[i].length, 4096u);

  // agree() and the connection both enforce the limit, because agree() may run in another process.
  rpcrdma::v2::Parameters peer;
  peer.max_segment_bytes = 1;
  EXPECT_EQ(rpcrdma::v2::agree({}, peer).max_segment_bytes, 4096u);
  rpcrdma::v2::Agreement agreed = lab.connection->agreement();
  agreed.max_segment_bytes = 1;
  lab.connection->apply(agreed);
  EXPECT_EQ(lab.connection->agreement().max_segment_bytes, 4096u);
}

// --- Thresholds

TEST(SafetyV2Chunks, V2_047_chunk_lists_count_against_the_threshold) {
  constexpr std::uint32_t kThreshold = 4096;
  constexpr std::uint32_t kWithChunk = 36 + 8 + 16;
  for (const std::uint32_t total : {kThreshold - 4, kThreshold, kThreshold + 4}) {
    PiecesReadClient lab;
    lab.confirm();
    const rdma::Sge piece{lab.memory.bytes.data(), 64, lab.memory.lkey};
    const rpcrdma::WriteItem item{.pieces = {&piece, 1}};
    Bytes payload = test_call(0, TestService::kName, {total - kWithChunk - 44});
    payload.resize(total - kWithChunk);
    lab.submit({.payload = payload, .writes = {&item, 1}, .max_reply_bytes = 64});
    lab.settle();
    const auto parts = lab.sent();
    ASSERT_EQ(parts.size(), total > kThreshold ? 2u : 1u) << total;
    for (const Bytes& part : parts) EXPECT_LE(part.size(), kThreshold);
    if (parts.size() == 1) {
      EXPECT_EQ(parts[0].size(), total);
    }
  }
}

// --- Remote invalidation

TEST(SafetyV2Invalidation, V2_128_V2_129_only_the_end_of_its_call_may_invalidate_a_handle) {
  struct Form {
    const char* what;
    Bytes (*message)(std::uint32_t xid);
  };
  const Form forms[] = {
      {"grant", [](std::uint32_t) { return grant(1); }},
      {"properties", [](std::uint32_t) { return Header{.xid = 7, .type = kConnProp}.then({0}); }},
      {"error of another call", [](std::uint32_t xid) { return error(xid + 1, 10); }},
      {"error of the call", [](std::uint32_t xid) { return error(xid, 10); }},
      {"first part of the reply",
       [](std::uint32_t xid) {
         return Header{.xid = xid, .flags = kResponse | kMore}.with(words({xid, 1, 0}));
       }},
      {"call against the flow", [](std::uint32_t) { return null_call(3); }},
      {"unknown type",
       [](std::uint32_t xid) {
         return Header{.xid = xid, .type = 99, .flags = kResponse}.then({0, 0, 0, 0});
       }},
      {"reply to nobody", [](std::uint32_t xid) { return success(xid + 1); }},
  };
  for (const Form& form : forms) {
    LabOptions options = Client::defaults();
    options.connection.credit_grant = 8;
    PiecesReadClient lab(options);
    lab.confirm();
    const Bytes call = lab.read(4096);
    const std::uint32_t xid = word_at(call, 0);
    const auto named = static_cast<rdma::Rkey>(word_at(call, 5));
    ASSERT_NE(named, rdma::Rkey{});
    lab.peer->send(form.message(xid), named);
    lab.settle();
    EXPECT_FALSE(lab.connection->is_open()) << form.what;
    EXPECT_EQ(lab.connection->close_reason(), CloseReason::InvalidationError) << form.what;
    EXPECT_EQ(lab.engine->counters().invalidation_errors, 1u) << form.what;
    EXPECT_TRUE(lab.finished.empty()) << form.what;
    // The call is retransmitted with another handle.
    lab.disconnect();
    lab.connect();
    lab.peer->inbox.clear();
    lab.peer->send(grant(200));
    lab.settle();
    const auto again = lab.sent();
    ASSERT_EQ(again.size(), 1u) << form.what;
    EXPECT_EQ(word_at(again[0], 0), xid) << form.what;
    EXPECT_NE(static_cast<rdma::Rkey>(word_at(again[0], 5)), named) << form.what;
  }
}

// --- Windows

TEST(SafetyV2Windows, V2_127_V2_145_all_windows_are_free_again_however_a_call_ends) {
  constexpr std::uint32_t kWindows = 2;
  LabOptions options = Client::defaults();
  options.requester.windows = kWindows;
  PiecesReadClient lab(options);
  lab.confirm();
  const auto segment = [](const Bytes& call, std::size_t at) {
    return rpcrdma::Segment{static_cast<rdma::Rkey>(word_at(call, at)), 4096,
                            std::uint64_t{word_at(call, at + 2)} << 32 | word_at(call, at + 3)};
  };
  const auto reply = [&](const Bytes& call) {
    const std::uint32_t xid = word_at(call, 0);
    return Header{.xid = xid, .flags = kResponse, .writes = {{segment(call, 9), segment(call, 13)}}}.with(
        words({xid, 1, 0, 0, 0, 0, 0, 8192}));
  };
  // The responder invalidates one of the two handles, or none.
  for (const bool remote : {true, false}) {
    const Bytes call = lab.read(4096, kWindows);
    lab.peer->send(reply(call), remote ? static_cast<rdma::Rkey>(word_at(call, 5)) : rdma::Rkey{});
    lab.settle();
    EXPECT_EQ(lab.finished.back().status, CallStatus::Ok);
  }
  // The call is cancelled while outstanding.
  Bytes call = lab.read(4096, kWindows);
  EXPECT_TRUE(lab.requester->cancel(static_cast<rpc::Xid>(word_at(call, 0))));
  lab.settle();
  EXPECT_EQ(lab.finished.back().status, CallStatus::Cancelled);
  lab.answer(success(word_at(call, 0)));  // the late reply returns its credit
  // The call is replanned with more room, and cancelled while it waits to be sent.
  rpcrdma::Request repeatable;
  repeatable.repeatable = true;
  for (const bool cancel : {false, true}) {
    call = lab.read(4096, kWindows, repeatable, 4096);
    const auto xid = static_cast<rpc::Xid>(word_at(call, 0));
    const std::size_t before = lab.finished.size();
    const std::uint64_t replanned = lab.engine->counters().calls_replanned;
    lab.peer->inbox.clear();
    lab.peer->send(error(word_at(call, 0), 8, {1, 8192}));
    for (int i = 0; i < 50 && lab.engine->counters().calls_replanned == replanned; ++i) {
      lab.peer->poll();
      lab.engine->poll(lab.now_ns += 1000);
    }
    if (cancel) {
      EXPECT_TRUE(lab.requester->cancel(xid));
    }
    lab.settle();
    ASSERT_EQ(lab.sent().size(), cancel ? 0u : 1u);
    if (!cancel) lab.answer(reply(lab.sent().at(0)));
    ASSERT_EQ(lab.finished.size(), before + 1);
    EXPECT_EQ(lab.finished.back().status, cancel ? CallStatus::Cancelled : CallStatus::Ok);
  }
  call = lab.read(4096, kWindows);
  lab.answer(reply(call));
  EXPECT_EQ(lab.finished.back().status, CallStatus::Ok);
  EXPECT_TRUE(lab.connection->is_open());
  EXPECT_EQ(lab.engine->counters().invalidation_errors, 0u);
}

}  // namespace
}  // namespace sluice::conformance::v2
