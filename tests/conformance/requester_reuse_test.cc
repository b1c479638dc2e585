// SPDX-License-Identifier: Apache-2.0
//
// Version 1 at the requester: a reused request slot or requester keeps nothing of its earlier use.
#include <gtest/gtest.h>

#include <cstring>

#include "tests/conformance/raw_server.h"

namespace sluice::conformance {
namespace {

using rpcrdma::CallStatus;

void answer_with(ClientLab& lab, std::span<const std::byte> message) {
  lab.peer->send(message);
  lab.settle();
}
/// Polls the client but not the server, so that no Send completes.
void turns(ClientLab& lab) {
  for (int i = 0; i < 4; ++i) lab.engine->poll(lab.now_ns += 1000);
}
void grant(ClientLab& lab, std::uint32_t credits) {
  const auto xid = lab.submit_null();
  lab.settle();
  answer_with(lab, ClientLab::success(*xid, credits));
  lab.finished.clear();
  lab.peer->inbox.clear();
}

// --- Slots

/// A client with a single request slot.
struct OneSlot : ClientLab {
  OneSlot() : ClientLab(options_with_one()) {}
  static LabOptions options_with_one() {
    LabOptions options;
    options.requester.requests = 1;
    return options;
  }
  /// Submits a call whose Send does not complete.
  std::uint32_t call_without_completion(bool as_long_call = false) {
    device->hold = [](const rdma::WorkCompletion& wc) {
      return rpcrdma::WrId::decode(wc.wr_id).kind == rpcrdma::WrKind::CallSent;
    };
    const auto xid = submit({.payload = null_call(), .max_reply_bytes = 64, .as_long_call = as_long_call});
    EXPECT_TRUE(xid);
    settle();
    return xid.value_or(0);
  }
  /// Checks that the call has ended, and that its slot is reusable only after the Send has completed.
  void expect_free_with_the_completion(CallStatus status) {
    ASSERT_EQ(finished.size(), 1u);
    EXPECT_EQ(finished[0].status, status);
    EXPECT_FALSE(submit_null());
    device->hold = nullptr;
    settle();
    EXPECT_TRUE(submit_null());
  }
};

TEST(RequesterReuse, a_slot_whose_send_is_not_complete_takes_no_call) {
  for (const bool as_long_call : {false, true}) {
    OneSlot lab;
    answer_with(lab, ClientLab::success(lab.call_without_completion(as_long_call), 4));
    lab.expect_free_with_the_completion(CallStatus::Ok);
  }
}

TEST(RequesterReuse, a_slot_of_a_call_that_was_given_up_waits_for_its_send) {
  OneSlot lab;
  ASSERT_TRUE(lab.requester->cancel(static_cast<rpc::Xid>(lab.call_without_completion())));
  lab.expect_free_with_the_completion(CallStatus::Cancelled);
}

/// The driver completes the Send as flushed.
TEST(RequesterReuse, a_slot_whose_send_was_out_when_its_connection_ended_takes_calls_of_the_next) {
  OneSlot lab;
  const auto first = lab.submit_null();
  ASSERT_TRUE(first);
  turns(lab);
  lab.disconnect();
  lab.connect();
  lab.settle();
  answer_with(lab, ClientLab::success(*first, 4));
  ASSERT_EQ(lab.finished.size(), 1u);
  EXPECT_EQ(lab.finished[0].status, CallStatus::Ok);
  EXPECT_TRUE(lab.submit_null());
}

TEST(RequesterReuse, V1_108_results_that_an_earlier_call_in_the_slot_asked_for_are_nobodys) {
  LabOptions options;
  options.requester.requests = 1;
  options.requester.single_segment_chunks = true;
  options.requester.bounce_buffers = 1;
  ClientLab lab(options);
  const CallerMemory memory = caller_memory(lab, 4096);
  const rdma::Sge pieces[] = {memory.piece(0, 32), memory.piece(64, 32), memory.piece(1024, 32),
                              memory.piece(1088, 32)};
  const rpcrdma::WriteItem items[] = {{std::span(pieces).first(2)}, {std::span(pieces).subspan(2)}};
  for (const std::size_t used : {2u, 1u}) {
    std::memset(memory.region.bytes.data(), 0xEE, 4096);
    lab.peer->inbox.clear();
    const auto xid =
        lab.submit({.payload = null_call(), .writes = std::span(items).first(used), .max_reply_bytes = 64});
    ASSERT_TRUE(xid);
    lab.settle();
    const Offer offer = offer_in(got(lab, 0));
    ASSERT_EQ(offer.writes.size(), used);
    for (const auto& chunk : offer.writes) lab.peer->write_remote(chunk.at(0), Bytes(64, std::byte{0x66}));
    answer_with(lab, RawCall{.xid = *xid, .credits = 4, .writes = offer.writes}.with(accepted(*xid)));
    EXPECT_EQ(lab.finished.back().status, CallStatus::Ok);
    EXPECT_EQ(memory.region.bytes[31], std::byte{0x66});
    EXPECT_EQ(memory.region.bytes[32], std::byte{0xEE});
    EXPECT_EQ(memory.region.bytes[95], std::byte{0x66});
    EXPECT_EQ(memory.region.bytes[96], std::byte{0xEE});
    for (const std::size_t at : {1024u, 1055u, 1088u, 1119u})
      EXPECT_EQ(memory.region.bytes[at], used == 2 ? std::byte{0x66} : std::byte{0xEE}) << at;
  }
}

TEST(RequesterReuse, V1_114_V1_118_the_shape_of_an_earlier_call_in_the_slot_does_not_stay) {
  LabOptions options;
  options.requester.requests = 1;
  ClientLab lab(options);
  const CallerMemory memory = caller_memory(lab, 4096);
  const rdma::Sge piece = memory.piece(0, 64);
  const rpcrdma::WriteItem write{{&piece, 1}};
  const rpcrdma::ReadItem read{rpcrdma::Position{44}, {&piece, 1}};
  const Bytes nothing = null_call();
  const Bytes sink = test_call(0, TestService::kSink, {64});
  const rpcrdma::Request requests[] = {
      {.payload = nothing, .max_reply_bytes = 64, .as_long_call = true},
      {.payload = nothing, .max_reply_bytes = 64, .offer_reply_chunk = true},
      {.payload = sink, .reads = {&read, 1}, .max_reply_bytes = 64},
      {.payload = nothing, .writes = {&write, 1}, .max_reply_bytes = 64},
      {.payload = nothing, .max_reply_bytes = 100000},
      {.payload = nothing, .max_reply_bytes = 64, .deadline_ns = 1000},
  };
  for (const rpcrdma::Request& request : requests) {
    const auto xid = lab.submit(request);
    ASSERT_TRUE(xid);
    lab.settle();
    answer_with(lab, ClientLab::success(*xid, 4));
    lab.peer->inbox.clear();
    lab.log.clear();
    const auto plain = lab.submit_null();
    lab.settle();
    ASSERT_EQ(lab.peer->inbox.size(), 1u);
    const RawCall expected{.xid = *plain};
    EXPECT_EQ(got(lab, 0), expected.with(rpc_call(*plain, kTestProgram, 1, 0)));
    EXPECT_EQ(lab.log.count(OpKind::Bind), 0u);
    const std::size_t before = lab.finished.size();
    lab.requester->expire(1'000'000'000);
    EXPECT_EQ(lab.finished.size(), before);
    answer_with(lab, ClientLab::success(*plain, 4));
    EXPECT_EQ(lab.finished.size(), before + 1);
  }
}

// --- XIDs chosen by the caller

LabOptions with_own_xids(std::uint32_t requests = 4) {
  LabOptions options;
  options.requester.requests = requests;
  options.requester.keep_xids = true;
  return options;
}
std::optional<std::uint32_t> submit_as(ClientLab& lab, std::uint32_t xid) {
  const Bytes payload = rpc_call(xid, kTestProgram, 1, 0);
  const auto kept = lab.submit({.payload = payload, .max_reply_bytes = 64});
  lab.settle();
  return kept;
}

TEST(RequesterXids, V1_155_calls_keep_the_xids_that_they_come_with) {
  ClientLab lab(with_own_xids());
  std::uint32_t last = 0;
  for (const std::uint32_t xid : {0xdeadbeefu, 0u, 5u, 0xdeadbeefu, 6u, 9u}) {
    lab.peer->inbox.clear();
    ASSERT_EQ(submit_as(lab, xid), xid);
    ASSERT_EQ(lab.peer->inbox.size(), 1u);
    EXPECT_EQ(xid_of(got(lab, 0)), xid);
    EXPECT_EQ(word_at(got(lab, 0), 7), xid);
    EXPECT_TRUE(lab.requester->is_outstanding(rpc::Xid{xid}));
    if (last != xid) {
      EXPECT_FALSE(lab.requester->is_outstanding(rpc::Xid{last}));
    }
    answer_with(lab, ClientLab::success(xid, 4));
    EXPECT_EQ(static_cast<std::uint32_t>(lab.finished.back().xid), xid);
    EXPECT_EQ(lab.finished.back().status, CallStatus::Ok);
    last = xid;
  }
  EXPECT_EQ(lab.finished.size(), 6u);
}

TEST(RequesterXids, V1_155_each_of_several_is_found_by_its_own) {
  ClientLab lab(with_own_xids());
  submit_as(lab, 100);
  answer_with(lab, ClientLab::success(100, 8));
  for (const std::uint32_t xid : {7u, 3u, 11u, 15u}) ASSERT_EQ(submit_as(lab, xid), xid);
  EXPECT_FALSE(submit_as(lab, 19)) << "all slots are in use";
  answer_with(lab, ClientLab::success(11, 8));
  EXPECT_EQ(static_cast<std::uint32_t>(lab.finished.back().xid), 11u);
  answer_with(lab, words({3, 1, 8, 4, 2}));
  EXPECT_EQ(static_cast<std::uint32_t>(lab.finished.back().xid), 3u);
  EXPECT_EQ(lab.finished.back().status, CallStatus::ChunkError);
  EXPECT_TRUE(lab.requester->cancel(rpc::Xid{15}));
  EXPECT_FALSE(lab.requester->cancel(rpc::Xid{15}));
  EXPECT_FALSE(lab.requester->cancel(rpc::Xid{11}));
  EXPECT_FALSE(lab.requester->cancel(rpc::Xid{4711}));
  lab.settle();
  EXPECT_EQ(static_cast<std::uint32_t>(lab.finished.back().xid), 15u);
  answer_with(lab, ClientLab::success(15, 8));  // late
  EXPECT_EQ(lab.engine->counters().unknown_xid, 1u);
  EXPECT_EQ(lab.requester->outstanding(), 1u);
  answer_with(lab, ClientLab::success(7, 8));
  EXPECT_EQ(lab.finished.size(), 5u);
  EXPECT_EQ(lab.requester->free_requests(), 4u);
}

// --- Connections

TEST(RequesterReuse, V1_140_V1_153_a_call_that_waits_to_be_fenced_when_the_connection_is_lost) {
  LabOptions options;
  options.engine.capacity.send_depth = 4;
  ClientLab lab(options);
  grant(lab, 16);
  const CallerMemory memory = caller_memory(lab, 4096);
  const rdma::Sge piece = memory.piece(0, 64);
  const rpcrdma::WriteItem item{{&piece, 1}};
  for (const bool lost : {true, false}) {
    lab.finished.clear();
    lab.peer->inbox.clear();
    const Bytes payload = null_call();
    const auto read = lab.submit({.payload = payload, .writes = {&item, 1}, .max_reply_bytes = 64});
    for (int i = 0; i < 3; ++i) lab.submit_null();
    turns(lab);
    ASSERT_EQ(lab.requester->outstanding(), 4u);
    // The send queue is full until the server receives the calls.
    lab.log.clear();
    EXPECT_TRUE(lab.requester->cancel(rpc::Xid{*read}));
    turns(lab);
    ASSERT_EQ(lab.log.count(OpKind::Invalidate), 0u);
    ASSERT_TRUE(lab.finished.empty());
    if (lost) {
      lab.disconnect();
      ASSERT_EQ(lab.connection->state(), rpcrdma::Connection::State::Closed);
    } else {
      lab.settle();
      EXPECT_EQ(lab.log.count(OpKind::Invalidate), 1u);
    }
    ASSERT_EQ(lab.finished.size(), 1u);
    EXPECT_EQ(lab.finished[0].status, CallStatus::Cancelled);
    if (lost) lab.connect();
    for (std::size_t i = 0; i < (lost ? 3u : 4u); ++i) {
      ASSERT_GT(lab.peer->inbox.size(), i);
      answer_with(lab, ClientLab::success(xid_of(got(lab, i)), 16));
    }
    EXPECT_EQ(lab.finished.size(), 4u);
    EXPECT_EQ(lab.log.count(OpKind::Invalidate), lost ? 0u : 1u);
    EXPECT_TRUE(lab.requester->quiescent());
    EXPECT_EQ(lab.requester->outstanding(), 0u);
    EXPECT_EQ(lab.requester->awaited_replies(), 0u);
    EXPECT_EQ(lab.requester->free_requests(), lab.options.requester.requests);
  }
  lab.disconnect();
  EXPECT_EQ(lab.connection->state(), rpcrdma::Connection::State::Closed);
}

TEST(RequesterReuse, V1_043_V1_152_answers_that_an_earlier_connection_owed_are_not_waited_for) {
  ClientLab lab;
  grant(lab, 2);
  for (int i = 0; i < 2; ++i) {
    const auto xid = lab.submit_null();
    lab.settle();
    EXPECT_TRUE(lab.requester->cancel(rpc::Xid{*xid}));
  }
  EXPECT_EQ(lab.requester->awaited_replies(), 2u);
  lab.disconnect();
  EXPECT_FALSE(lab.requester->connected());
  EXPECT_FALSE(lab.requester->attached());
  EXPECT_EQ(lab.requester->awaited_replies(), 0u);
  EXPECT_EQ(lab.requester->reconnects(), 0u);
  lab.connect();
  EXPECT_EQ(lab.requester->reconnects(), 1u);
  EXPECT_EQ(static_cast<std::uint32_t>(lab.requester->granted()), 1u)
      << "the grant of the last connection is void";
  for (int i = 0; i < 2; ++i) lab.submit_null();
  lab.settle();
  ASSERT_EQ(lab.peer->inbox.size(), 1u);
  answer_with(lab, ClientLab::success(xid_of(got(lab, 0)), 2));
  EXPECT_EQ(lab.peer->inbox.size(), 2u);
}

/// The queue pair is in Error as soon as the driver notices the end, and the connection is closed as soon as
/// the engine handles a flushed completion.
TEST(RequesterReuse, V1_152_calls_with_chunks_on_a_queue_pair_in_error_wait_for_the_next_connection) {
  ClientLab lab;
  grant(lab, 4);
  const CallerMemory memory = caller_memory(lab, 4096);
  const rdma::Sge piece = memory.piece(0, 64);
  const rpcrdma::WriteItem item{{&piece, 1}};
  lab.device->hold = [](const rdma::WorkCompletion& wc) { return wc.status != rdma::WcStatus::Success; };
  lab.peer->owned_qp.reset();
  turns(lab);
  ASSERT_TRUE(lab.connection->is_open());
  for (int i = 0; i < 2; ++i) {
    lab.submit({.payload = null_call(), .writes = {&item, 1}, .max_reply_bytes = 64});
    turns(lab);
  }
  lab.device->hold = nullptr;
  lab.settle();
  EXPECT_EQ(lab.connection->close_reason(), rpcrdma::CloseReason::PeerClosed);
  EXPECT_EQ(lab.engine->counters().connection_errors, 0u);
  EXPECT_TRUE(lab.finished.empty());
  while (lab.engine->take_closed() != nullptr) {
  }
  lab.connect();
  for (std::size_t i = 0; i < 2; ++i) {
    ASSERT_GT(lab.peer->inbox.size(), i);
    const std::uint32_t xid = xid_of(got(lab, i));
    answer_with(lab, RawCall{.xid = xid, .credits = 4}.with(accepted(xid)));
  }
  ASSERT_EQ(lab.finished.size(), 2u);
  for (const Finished& call : lab.finished) EXPECT_EQ(call.status, CallStatus::Ok);
  EXPECT_TRUE(lab.requester->balanced());
}

TEST(RequesterReuse, V1_151_calls_of_a_requester_that_is_attached_wait_until_it_is_connected) {
  ClientLab lab;
  lab.disconnect();
  lab.log.clear();
  rpcrdma::Connection* const connection = lab.engine->free_connection();
  connection->open(lab.device->create_queue_pair(lab.engine->queue_pair_limits()), lab.options.connection, {},
                   lab.requester.get());
  EXPECT_TRUE(lab.requester->attached());
  EXPECT_FALSE(lab.requester->connected());
  lab.submit_null();
  turns(lab);
  EXPECT_EQ(lab.log.count(OpKind::PostSend), 0u);
  EXPECT_EQ(lab.requester->outstanding(), 0u);
  connection->close(rpcrdma::CloseReason::LocalClose);
  lab.settle();
  EXPECT_FALSE(lab.requester->attached());
  while (lab.engine->take_closed() != nullptr) {
  }
  lab.connect();
  EXPECT_EQ(lab.peer->inbox.size(), 1u);
}

}  // namespace
}  // namespace sluice::conformance
