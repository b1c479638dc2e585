// SPDX-License-Identifier: Apache-2.0
//
// Memory and calls of version 1 callers are safe from late, contradictory and lost replies, and from
// connections that end at any moment.
#include <gtest/gtest.h>

#include <array>

#include "tests/conformance/raw_call.h"

namespace sluice::conformance {
namespace {

using rpcrdma::CallStatus;

constexpr std::uint32_t kHeaderBytes = 28;   ///< without chunks
constexpr std::uint32_t kSegmentBytes = 16;  ///< of a Write chunk, which begins with 8 more bytes

/// Our engine as client, with memory of a caller and enough credits for every test.
class Caller : public ClientLab {
 public:
  explicit Caller(const LabOptions& chosen = {}) : ClientLab(chosen) {
    memory = device->allocate_memory(1u << 16);
    grant();
  }
  void grant(std::uint32_t credits = 16) {
    const std::uint32_t xid = *submit_null();
    settle();
    answer(ClientLab::success(xid, credits));
    finished.clear();
    peer->inbox.clear();
  }
  void answer(std::span<const std::byte> message) {
    peer->send(message);
    settle();
  }
  rdma::Sge piece(std::uint32_t from, std::uint32_t bytes) const {
    return {memory.bytes.data() + from, bytes, memory.lkey};
  }
  /// Submits a call with one Write chunk of `segments` segments; returns its XID.
  std::uint32_t submit_read(std::uint32_t segments, std::uint64_t deadline_ns = 0) {
    std::vector<rdma::Sge> pieces;
    for (std::uint32_t i = 0; i < segments; ++i) pieces.push_back(piece(i * 1024, 64));
    const rpcrdma::WriteItem item{pieces};
    const Bytes payload = rpc_call(0, kTestProgram, 1, TestService::kSource);
    const auto xid =
        submit({.payload = payload, .writes = {&item, 1}, .max_reply_bytes = 64, .deadline_ns = deadline_ns});
    return xid.value_or(0);
  }
  std::vector<Bytes> calls_of(std::uint32_t xid) const {
    std::vector<Bytes> result;
    for (const Received& received : peer->inbox)
      if (word_at(received.bytes, 0) == xid) result.push_back(received.bytes);
    return result;
  }
  rpcrdma::Counters& counters() { return engine->counters(); }

  rdma::MemoryRegion memory;
};

LabOptions with_windows(std::uint32_t windows) {
  LabOptions options;
  options.requester.windows = windows;
  return options;
}

// --- Late replies

TEST(SafetyRequester, V1_155_a_late_answer_does_not_end_the_call_that_has_its_place_now) {
  for (const bool error : {false, true}) {
    Caller lab;
    const std::uint32_t given_up = *lab.submit_null();
    lab.settle();
    EXPECT_TRUE(lab.requester->cancel(rpc::Xid{given_up}));
    lab.settle();
    ASSERT_EQ(lab.finished.size(), 1u);
    const std::uint32_t next = *lab.submit_null();
    lab.settle();
    ASSERT_NE(next, given_up);
    ASSERT_EQ(next % lab.options.requester.requests, given_up % lab.options.requester.requests);

    lab.answer(error ? words({given_up, 1, 16, 4, 2}) : ClientLab::success(given_up, 16));
    EXPECT_EQ(lab.finished.size(), 1u);
    EXPECT_EQ(lab.counters().unknown_xid, 1u);
    EXPECT_TRUE(lab.requester->is_outstanding(rpc::Xid{next}));
    EXPECT_FALSE(lab.requester->is_outstanding(rpc::Xid{given_up}));
    EXPECT_FALSE(lab.requester->cancel(rpc::Xid{given_up}));
    lab.answer(ClientLab::success(next, 16));
    ASSERT_EQ(lab.finished.size(), 2u);
    EXPECT_EQ(lab.finished[1].status, CallStatus::Ok);
    EXPECT_EQ(static_cast<std::uint32_t>(lab.finished[1].xid), next);
  }
}

// --- Thresholds

TEST(SafetyRequester, V1_009_V1_064_chunk_lists_count_against_the_threshold) {
  for (const std::uint32_t segments : {0u, 1u, 20u}) {
    const std::uint32_t header = kHeaderBytes + (segments > 0 ? 8 + segments * kSegmentBytes : 0);
    for (const std::uint32_t total : {1020u, 1024u, 1028u}) {
      LabOptions options;
      options.connection.send_inline_bytes = 1024;
      Caller lab(options);
      std::vector<rdma::Sge> pieces;
      for (std::uint32_t i = 0; i < segments; ++i) pieces.push_back(lab.piece(i * 1024, 64));
      const rpcrdma::WriteItem item{pieces};
      Bytes payload = rpc_call(0, kTestProgram, 1, TestService::kName);
      payload.resize(total - header);
      const auto xid = lab.submit(
          {.payload = payload, .writes = std::span(&item, segments > 0 ? 1 : 0), .max_reply_bytes = 64});
      lab.settle();
      EXPECT_TRUE(lab.connection->is_open()) << "a Send longer than the peer's Receive";
      const auto calls = lab.calls_of(*xid);
      ASSERT_EQ(calls.size(), 1u) << segments << " segments, " << total << " bytes";
      const bool fits = total <= 1024;
      EXPECT_EQ(word_at(calls[0], 3), fits ? 0u : 1u) << segments << " segments, " << total << " bytes";
      EXPECT_EQ(calls[0].size(), fits ? total : header + 24);  // one entry of a position-zero chunk
    }
  }
}

TEST(SafetyRequester, V1_118_A_20_write_lists_that_come_back_count_against_our_receive) {
  constexpr std::uint32_t kReceive = 4096;
  for (const std::uint32_t segments : {0u, 1u, 20u}) {
    const std::uint32_t header = kHeaderBytes + (segments > 0 ? 8 + segments * kSegmentBytes : 0);
    for (const std::uint32_t total : {kReceive - 4, kReceive, kReceive + 4}) {
      LabOptions options;
      options.connection.receive_inline_bytes = kReceive;
      Caller lab(options);
      std::vector<rdma::Sge> pieces;
      for (std::uint32_t i = 0; i < segments; ++i) pieces.push_back(lab.piece(i * 1024, 64));
      const rpcrdma::WriteItem item{pieces};
      const Bytes payload = rpc_call(0, kTestProgram, 1, TestService::kSource);
      const auto xid = lab.submit({.payload = payload,
                                   .writes = std::span(&item, segments > 0 ? 1 : 0),
                                   .max_reply_bytes = total - header});
      lab.settle();
      const Bytes message = lab.calls_of(*xid).at(0);
      const auto call = rpcrdma::v1::decode(message);
      EXPECT_EQ(call.header.chunks.reply.has_value(), total > kReceive)
          << segments << " segments, " << total << " bytes";
    }
  }
}

// --- Contradictory replies

TEST(SafetyRequester, V1_110_V1_126_a_reply_chunk_with_a_gap_is_no_reply) {
  struct Form {
    std::array<std::uint32_t, 3> lengths;
    CallStatus status;
  };
  for (const Form& form :
       {Form{{1024, 1024, 952}, CallStatus::Ok}, Form{{1024, 512, 0}, CallStatus::Ok},
        Form{{24, 0, 0}, CallStatus::Ok}, Form{{1000, 1024, 0}, CallStatus::UnusableReply},
        Form{{1024, 0, 8}, CallStatus::UnusableReply}, Form{{1020, 0, 952}, CallStatus::UnusableReply},
        Form{{0, 1024, 0}, CallStatus::UnusableReply}}) {
    LabOptions options;
    options.requester.max_segment_bytes = 1024;
    Caller lab(options);
    const Bytes payload = rpc_call(0, kTestProgram, 1, TestService::kList);
    const std::uint32_t xid =
        *lab.submit({.payload = payload, .max_reply_bytes = 3000, .offer_reply_chunk = true});
    lab.settle();
    const Bytes message = lab.calls_of(xid).at(0);
    const auto call = rpcrdma::v1::decode(message);
    ASSERT_TRUE(call.header.chunks.reply);
    ASSERT_EQ(call.header.chunks.reply->size(), 3u);
    std::vector<rpcrdma::Segment> returned;
    for (std::uint32_t i = 0; i < 3; ++i) {
      returned.push_back((*call.header.chunks.reply)[i]);
      Bytes content = words({xid, 1, 0, 0, 0, 0});
      content.resize(returned[i].length);
      lab.peer->write_remote(returned[i], content);
      returned[i].length = form.lengths[i];
    }
    lab.answer(RawCall{.xid = xid, .credits = 16, .proc = 1, .reply = returned}.header());
    ASSERT_EQ(lab.finished.size(), 1u);
    EXPECT_EQ(lab.finished[0].status, form.status)
        << form.lengths[0] << " " << form.lengths[1] << " " << form.lengths[2];
    EXPECT_TRUE(lab.connection->is_open());
  }
}

TEST(SafetyRequester, V1_036_V1_056_a_grant_in_an_unusable_reply_is_none) {
  ClientLab lab;
  for (int i = 0; i < 4; ++i) lab.submit_null();
  lab.settle();
  ASSERT_EQ(lab.peer->inbox.size(), 1u);
  const std::uint32_t xid = word_at(lab.peer->inbox[0].bytes, 0);
  // The XID of the RPC message belongs to another call.
  lab.peer->send(RawCall{.xid = xid, .credits = 1000}.with(words({xid + 1, 1, 0, 0, 0, 0})));
  lab.settle();
  ASSERT_EQ(lab.finished.size(), 1u);
  EXPECT_EQ(lab.finished[0].status, CallStatus::UnusableReply);
  EXPECT_EQ(static_cast<std::uint32_t>(lab.requester->granted()), 1u);
  EXPECT_EQ(lab.requester->outstanding(), 1u);
  EXPECT_EQ(lab.peer->inbox.size(), 2u);
}

// --- Windows

TEST(SafetyRequester, V1_152_V1_153_a_lost_connection_gives_back_the_windows_of_pending_calls) {
  constexpr std::uint32_t kWindows = 3;
  Caller lab(with_windows(kWindows));
  const std::uint32_t xid = lab.submit_read(kWindows);
  lab.settle();
  ASSERT_EQ(lab.calls_of(xid).size(), 1u);
  for (int i = 0; i < 3; ++i) {
    lab.disconnect();
    lab.connect();
    ASSERT_EQ(lab.calls_of(xid).size(), 1u) << "connection " << i + 2;
    EXPECT_EQ(lab.calls_of(xid)[0].size(), kHeaderBytes + 8 + kWindows * kSegmentBytes + 40);
  }
  lab.answer(ClientLab::success(xid, 16));
  ASSERT_EQ(lab.finished.size(), 1u);
  EXPECT_EQ(lab.finished[0].status, CallStatus::Ok);
  const std::uint32_t next = lab.submit_read(kWindows);
  lab.settle();
  EXPECT_EQ(lab.calls_of(next).size(), 1u);
}

TEST(SafetyRequester, V1_153_a_call_whose_memory_cannot_all_be_exposed_gives_back_its_windows) {
  constexpr std::uint32_t kWindows = 3;
  Caller lab(with_windows(kWindows));
  // The driver refuses the third window: its memory is not registered under this key.
  const std::array<rdma::Sge, kWindows> pieces = {
      lab.piece(0, 64), lab.piece(1024, 64),
      rdma::Sge{lab.memory.bytes.data() + 2048, 64, static_cast<rdma::Lkey>(~0u)}};
  const rpcrdma::WriteItem item{pieces};
  const Bytes payload = rpc_call(0, kTestProgram, 1, TestService::kSource);
  const auto xid = lab.submit({.payload = payload, .writes = {&item, 1}, .max_reply_bytes = 64});
  ASSERT_TRUE(xid);
  EXPECT_EQ(lab.log.all(OpKind::Bind).size(), kWindows);
  EXPECT_EQ(lab.connection->close_reason(), rpcrdma::CloseReason::InvalidationError);
  lab.disconnect();
  ASSERT_EQ(lab.connection->state(), rpcrdma::Connection::State::Closed);
  EXPECT_TRUE(lab.requester->cancel(rpc::Xid{*xid}));
  ASSERT_EQ(lab.finished.size(), 1u);
  EXPECT_EQ(lab.finished[0].status, CallStatus::Cancelled);
  lab.connect();
  const std::uint32_t next = lab.submit_read(kWindows);
  lab.settle();
  EXPECT_EQ(lab.calls_of(next).size(), 1u);
}

TEST(SafetyRequester, V1_142_V1_056_calls_that_are_given_up_give_back_their_windows) {
  constexpr std::uint32_t kWindows = 2;
  for (const bool cancel : {true, false}) {
    Caller lab(with_windows(kWindows));
    for (std::uint32_t i = 0; i < 5; ++i) {
      const std::uint32_t xid = lab.submit_read(kWindows, 1'000'000'000);
      lab.settle();
      ASSERT_EQ(lab.calls_of(xid).size(), 1u) << "call " << i << " has no windows";
      if (cancel)
        EXPECT_TRUE(lab.requester->cancel(rpc::Xid{xid}));
      else
        lab.requester->expire(2'000'000'000);
      lab.settle();
      ASSERT_EQ(lab.finished.size(), i + 1);
      EXPECT_EQ(lab.finished[i].status, cancel ? CallStatus::Cancelled : CallStatus::TimedOut);
      EXPECT_EQ(lab.log.count(OpKind::InvalidateDone), i + 1);  // one of the two is signaled
    }
  }
}

// --- Completions

/// Only the last of several calls staged together has a completion. A call that fails has a separate one.
TEST(SafetyRequester, V1_152_calls_that_share_a_completion_all_go_out_again_over_the_next_connection) {
  constexpr std::uint32_t kCalls = 12;
  for (const std::uint32_t received : {0u, 5u}) {
    LabOptions options;
    options.raw_receives = 5;
    Caller lab(options);
    for (std::uint32_t i = 0; i < kCalls; ++i) ASSERT_TRUE(lab.submit_null());
    lab.engine->poll(++lab.now_ns);
    if (received > 0) lab.peer->poll();
    ASSERT_EQ(lab.peer->inbox.size(), received);
    lab.disconnect();
    lab.peer->inbox.clear();
    lab.connect();
    lab.settle();
    for (std::size_t i = 0; i < lab.peer->inbox.size(); ++i)
      lab.answer(ClientLab::success(word_at(lab.peer->inbox[i].bytes, 0), kCalls));
    EXPECT_EQ(lab.peer->inbox.size(), kCalls);
    EXPECT_EQ(lab.finished.size(), kCalls);
    EXPECT_TRUE(lab.requester->balanced());
  }
}

// --- Buffers

TEST(SafetyRequester, V1_056_buffers_of_long_calls_and_replies_come_back_however_a_call_ends) {
  LabOptions options;
  options.requester.long_buffers = 2;
  Caller lab(options);
  const std::uint32_t inline_bytes = options.requester.inline_bytes;
  for (std::uint32_t i = 0; i < 6; ++i) {
    Bytes payload = rpc_call(0, kTestProgram, 1, TestService::kName);
    payload.resize(inline_bytes + 4);
    const auto xid = lab.submit({.payload = payload, .max_reply_bytes = 64, .offer_reply_chunk = true});
    ASSERT_TRUE(xid) << "call " << i << " has no buffer";
    lab.settle();
    ASSERT_EQ(lab.calls_of(*xid).size(), 1u) << "call " << i << " has no buffer for its reply";
    if (i % 2 == 0)
      lab.answer(ClientLab::success(*xid, 16));
    else
      EXPECT_TRUE(lab.requester->cancel(rpc::Xid{*xid}));
    lab.settle();
    ASSERT_EQ(lab.finished.size(), i + 1);
    EXPECT_EQ(lab.finished[i].status, i % 2 == 0 ? CallStatus::Ok : CallStatus::Cancelled);
  }
}

TEST(SafetyRequester, V1_056_F_03_bounce_buffers_come_back_however_a_call_ends) {
  LabOptions options;
  options.requester.single_segment_chunks = true;
  options.requester.bounce_buffers = 1;
  Caller lab(options);
  for (std::uint32_t i = 0; i < 4; ++i) {
    const std::uint32_t xid = lab.submit_read(2);
    ASSERT_NE(xid, 0u) << "call " << i << " has no buffer";
    lab.settle();
    if (i % 2 == 0)
      lab.answer(ClientLab::success(xid, 16));
    else
      EXPECT_TRUE(lab.requester->cancel(rpc::Xid{xid}));
    lab.settle();
    ASSERT_EQ(lab.finished.size(), i + 1);
  }
}

// --- Memory that cannot be fenced

TEST(SafetyRequester, V1_143_memory_that_cannot_be_fenced_is_the_callers_when_the_queue_pair_is_gone) {
  for (const std::uint32_t segments : {1u, 3u}) {
    Caller lab;
    bool closed = false;
    bool queue_pair = true;
    lab.on_reply = [&](const rpcrdma::Reply&) {
      closed = lab.connection->state() == rpcrdma::Connection::State::Closed;
      queue_pair = lab.connection->heard_from_peer();
    };
    const std::uint32_t xid = lab.submit_read(segments);
    lab.settle();
    ASSERT_EQ(lab.calls_of(xid).size(), 1u);
    // The invalidations are posted, and the queue pair ends before it executes them.
    EXPECT_TRUE(lab.requester->cancel(rpc::Xid{xid}));
    lab.connection->close(rpcrdma::CloseReason::LocalClose);
    EXPECT_TRUE(lab.finished.empty());
    lab.settle();
    ASSERT_EQ(lab.finished.size(), 1u);
    EXPECT_EQ(lab.finished[0].status, CallStatus::Cancelled);
    EXPECT_TRUE(closed);
    EXPECT_FALSE(queue_pair);
    lab.disconnect();
    lab.connect();
    lab.grant();
    EXPECT_TRUE(lab.connection->is_open());
  }
}

TEST(SafetyRequester, V1_153_completions_of_an_earlier_connection_mean_nothing_to_the_next) {
  Caller lab;
  const std::uint32_t xid = lab.submit_read(1);
  lab.settle();
  const std::uint64_t sent = lab.log.all(OpKind::PostSend).back().wr_id;
  rpcrdma::Connection* const place = lab.connection;
  lab.disconnect();
  lab.connect();
  ASSERT_EQ(lab.connection, place);
  ASSERT_TRUE(lab.requester->quiescent());
  lab.connection->on_completion({.wr_id = sent, .opcode = rdma::WcOpcode::Send});
  EXPECT_TRUE(lab.requester->quiescent());
  lab.answer(ClientLab::success(xid, 16));
  ASSERT_EQ(lab.finished.size(), 1u);
  lab.disconnect();
  EXPECT_EQ(lab.connection->state(), rpcrdma::Connection::State::Closed);
}

}  // namespace
}  // namespace sluice::conformance
