// SPDX-License-Identifier: Apache-2.0
//
// Requirement rows at the requester, against a raw server: which memory is exposed and for how long, and
// reconnects.
#include <gtest/gtest.h>

#include <cstring>
#include <set>

#include "tests/conformance/raw_server.h"

namespace sluice::conformance {
namespace {

using rpcrdma::CallStatus;
using Where = rpcrdma::ItemResult::Where;

TEST(RequesterMemory, V1_118_long_calls_that_wait_for_a_connection_leave_memory_for_their_replies) {
  for (const std::uint32_t buffers : {2u, 3u, 4u, 8u}) {
    LabOptions options;
    options.requester.long_buffers = buffers;
    options.requester.long_buffer_bytes = 65536;
    options.connection.send_inline_bytes = 4096;
    options.raw_receive_bytes = 4096;
    ClientLab lab(options);
    lab.disconnect();
    Bytes payload = null_call();
    payload.resize(8192);
    std::size_t taken = 0;
    while (taken < buffers && lab.submit({.payload = payload, .max_reply_bytes = 60000})) ++taken;
    EXPECT_GE(taken, 1u);
    lab.connect();
    lab.settle();
    std::size_t answered = 0;
    while (answered < lab.peer->inbox.size()) {
      const std::uint32_t xid = xid_of(got(lab, answered++));
      lab.peer->send(ClientLab::success(xid, 32));
      lab.settle();
    }
    EXPECT_EQ(answered, taken) << buffers;
    EXPECT_EQ(lab.finished.size(), taken) << buffers;
  }
}

TEST(RequesterMemory, V1_118_a_call_that_needs_more_long_buffers_than_there_are_ends) {
  LabOptions options;
  options.requester.long_buffers = 1;
  options.requester.long_buffer_bytes = 65536;
  ClientLab lab(options);
  Bytes payload = null_call();
  payload.resize(8192);
  ASSERT_TRUE(lab.submit({.payload = payload, .max_reply_bytes = 60000}));
  lab.settle();
  ASSERT_EQ(lab.finished.size(), 1u);
  EXPECT_EQ(lab.finished[0].status, CallStatus::TooLarge);
  EXPECT_TRUE(lab.submit({.payload = payload, .max_reply_bytes = 64}));
  lab.settle();
  EXPECT_EQ(lab.peer->inbox.size(), 1u);
}

TEST(RequesterMemory, V1_118_short_reply_chunks_leave_the_long_buffers_to_long_ones) {
  LabOptions options;
  options.requester.long_buffers = 2;
  options.requester.long_buffer_bytes = 65536;
  options.requester.short_reply_buffers = 2;
  options.requester.short_reply_bytes = 8192;
  ClientLab lab(options);
  const auto first = lab.submit_null();
  lab.settle();
  lab.peer->send(ClientLab::success(*first, 16));
  lab.settle();
  const auto sent = [&](std::initializer_list<std::uint32_t> bounds) {
    lab.peer->inbox.clear();
    for (const std::uint32_t bound : bounds) lab.submit({.payload = null_call(), .max_reply_bytes = bound});
    lab.settle();
    return lab.peer->inbox.size();
  };
  EXPECT_EQ(sent({8192, 8192, 60000, 60000}), 4u);
  for (std::size_t i = 0; i < 4; ++i) lab.peer->send(ClientLab::success(xid_of(got(lab, i)), 16));
  lab.settle();
  EXPECT_EQ(sent({8192, 8192, 8192, 8192, 8192}), 4u) << "the third and the fourth use long buffers";
}

TEST(RequesterMemory, V1_141_a_change_of_exposed_arguments_is_noticed_when_asked_for) {
  for (const bool check : {false, true})
    for (const bool change : {false, true}) {
      LabOptions options;
      options.requester.check_exposed_memory = check;
      ClientLab lab(options);
      const CallerMemory memory = caller_memory(lab, 4096);
      const rdma::Sge piece = memory.piece(0, 2000);
      Bytes payload = null_call();
      append(payload, words({2000}));
      const rpcrdma::ReadItem read{rpcrdma::Position{static_cast<std::uint32_t>(payload.size())},
                                   {&piece, 1}};
      const auto xid = lab.submit({.payload = payload, .reads = {&read, 1}, .max_reply_bytes = 64});
      lab.settle();
      if (change) memory.region.bytes[1234] ^= std::byte{1};
      lab.peer->send(ClientLab::success(*xid, 4));
      lab.settle();
      ASSERT_EQ(lab.finished.size(), 1u);
      EXPECT_EQ(lab.engine->counters().exposed_memory_changed, check && change ? 1u : 0u);
    }
}

TEST(RequesterMemory, V1_139_V1_140_V1_144_V1_150_F_29_chunk_memory_is_fenced_before_the_caller_has_it_back) {
  ClientLab lab;
  const CallerMemory memory = caller_memory(lab, 4096);
  const rdma::Sge piece = memory.piece(0, 64);
  const rpcrdma::WriteItem item{{&piece, 1}};
  std::set<std::uint32_t> handles;
  std::uint32_t previous = 0;
  std::uint32_t steps_of_one = 0;
  std::size_t invalidated_at_completion = 0;
  lab.on_reply = [&](const rpcrdma::Reply&) {
    invalidated_at_completion = lab.log.count(OpKind::InvalidateDone);
  };
  for (std::size_t i = 0; i < 50; ++i) {
    lab.submit({.payload = null_call(), .writes = {&item, 1}, .max_reply_bytes = 64});
    lab.settle();
    const auto segment = offer_in(got(lab, i)).writes.at(0).at(0);
    const auto handle = static_cast<std::uint32_t>(segment.handle);
    handles.insert(handle);
    steps_of_one += handle == previous + 1;
    previous = handle;
    lab.peer->send(RawCall{.xid = xid_of(got(lab, i)), .credits = 16}.with(accepted(xid_of(got(lab, i)))));
    lab.settle();
    ASSERT_EQ(lab.finished.size(), i + 1);
    EXPECT_EQ(invalidated_at_completion, i + 1);
  }
  EXPECT_GE(handles.size(), 48u);  // with 20 random bits, two of 50 may be equal
  EXPECT_LT(steps_of_one, 5u);
  for (const Op& op : lab.log.all(OpKind::PostSend)) EXPECT_FALSE(op.with_invalidate);
  // The handle of a finished call is refused.
  const auto stale = offer_in(got(lab, 49)).writes.at(0).at(0);
  const std::byte before = memory.region.bytes[0];
  lab.peer->write_remote(stale, Bytes(64, std::byte{0x66}));
  lab.settle();
  EXPECT_EQ(lab.peer->first_error, rdma::WcStatus::RemoteAccessError);
  EXPECT_EQ(memory.region.bytes[0], before);
}

TEST(RequesterMemory, V1_147_rights_are_those_of_the_chunk) {
  ClientLab lab;
  const CallerMemory memory = caller_memory(lab, 4096);
  const rdma::Sge piece = memory.piece(0, 64);
  const rpcrdma::ReadItem read{rpcrdma::Position{44}, {&piece, 1}};
  const rdma::Sge room = memory.piece(1024, 64);
  const rpcrdma::WriteItem write{{&room, 1}};
  lab.submit({.payload = test_call(0, TestService::kSink, {64}),
              .reads = {&read, 1},
              .writes = {&write, 1},
              .max_reply_bytes = 64,
              .offer_reply_chunk = true});
  lab.settle();
  const auto binds = lab.log.all(OpKind::Bind);
  ASSERT_EQ(binds.size(), 3u);
  EXPECT_EQ(binds[0].access, rdma::kRemoteRead);
  EXPECT_EQ(binds[1].access, rdma::kRemoteWrite);
  EXPECT_EQ(binds[2].access, rdma::kRemoteWrite);
  // No window covers bytes of the Send (V1-003).
  for (const Op& bind : binds) EXPECT_NE(bind.remote_address, 0u);
  lab.peer->write_remote(offer_in(got(lab, 0)).reads.at(0).target, Bytes(8, std::byte{1}));
  lab.settle();
  EXPECT_EQ(lab.peer->first_error, rdma::WcStatus::RemoteAccessError);
}

TEST(RequesterMemory, V1_142_cancelled_and_timed_out_calls_are_fenced_before_the_caller_has_its_memory_back) {
  for (const bool cancel : {true, false}) {
    ClientLab lab;
    const CallerMemory memory = caller_memory(lab, 4096);
    // The caller overwrites its memory in the completion.
    std::size_t fenced = 0;
    lab.on_reply = [&](const rpcrdma::Reply& reply) {
      if (reply.status() == CallStatus::Ok) return;
      fenced = lab.log.count(OpKind::InvalidateDone);
      fill_pattern(memory.region.bytes, 3);
    };
    const rdma::Sge piece = memory.piece(0, 64);
    const rpcrdma::WriteItem item{{&piece, 1}};
    const auto xid = lab.submit(
        {.payload = null_call(), .writes = {&item, 1}, .max_reply_bytes = 64, .deadline_ns = 1'000'000'000});
    lab.settle();
    if (cancel)
      EXPECT_TRUE(lab.requester->cancel(rpc::Xid{*xid}));
    else
      lab.requester->expire(2'000'000'000);
    lab.settle();
    ASSERT_EQ(lab.finished.size(), 1u);
    EXPECT_EQ(lab.finished[0].status, cancel ? CallStatus::Cancelled : CallStatus::TimedOut);
    EXPECT_EQ(fenced, 1u);
    // The call's credit is in use until the server answers, so the next call has to wait (V1-043).
    lab.submit_null();
    lab.settle();
    EXPECT_EQ(lab.peer->inbox.size(), 1u);
    lab.peer->send(ClientLab::success(*xid, 4));
    lab.settle();
    EXPECT_EQ(lab.peer->inbox.size(), 2u);
    EXPECT_EQ(lab.finished.size(), 1u);
    // The server writes after the end of the call.
    lab.peer->write_remote(offer_in(got(lab, 0)).writes.at(0).at(0), Bytes(64, std::byte{0x66}));
    lab.settle();
    EXPECT_EQ(lab.peer->first_error, rdma::WcStatus::RemoteAccessError);
    EXPECT_TRUE(has_pattern(memory.region.bytes, 3));
  }
}

TEST(RequesterMemory, V1_108_what_a_server_wrote_into_room_that_it_returns_unused_is_no_data) {
  for (const bool bounced : {false, true}) {
    LabOptions options;
    options.requester.requests = 1;
    options.requester.round_up_write_chunks = bounced;
    options.requester.bounce_buffers = 1;
    ClientLab lab(options);
    const CallerMemory memory = caller_memory(lab, 4096);
    const rdma::Sge piece = memory.piece(0, 61);
    const rpcrdma::WriteItem item{{&piece, 1}};
    std::vector<Where> where;
    std::uint64_t returned = 0;
    lab.on_reply = [&](const rpcrdma::Reply& reply) {
      returned = reply.returned(0);
      where = {reply.item(0, 16).where, reply.item(0, 61).where};
    };
    // First the whole Write chunk is used, then a part, then nothing. Lengths returned earlier have no
    // effect.
    for (const std::uint32_t used : {61u, 16u, 0u}) {
      lab.peer->inbox.clear();
      std::memset(memory.region.bytes.data(), 0xEE, 64);
      const auto xid = lab.submit({.payload = null_call(), .writes = {&item, 1}, .max_reply_bytes = 64});
      lab.settle();
      Offer offer = offer_in(got(lab, 0));
      lab.peer->write_remote(offer.writes.at(0).at(0),
                             Bytes(offer.writes[0][0].length, std::byte{0x66}));  // garbage after `used`
      set_lengths(offer.writes[0], {used});
      lab.peer->send(RawCall{.xid = *xid, .credits = 4, .writes = offer.writes}.with(accepted(*xid)));
      lab.settle();
      EXPECT_EQ(lab.finished.back().status, CallStatus::Ok);
      EXPECT_EQ(returned, used);
      const Where partly = used == 0 ? Where::Inline : used == 16 ? Where::Placed : Where::Defect;
      const Where whole = used == 0 ? Where::Inline : used == 61 ? Where::Placed : Where::Defect;
      EXPECT_EQ(where, (std::vector{partly, whole}));
      for (std::size_t i = used; bounced && i < 64; ++i) EXPECT_EQ(memory.region.bytes[i], std::byte{0xEE});
    }
  }
}

TEST(RequesterMemory, V1_143_X_18_memory_that_cannot_be_fenced_costs_the_connection_first) {
  ClientLab lab;
  auto broken = std::make_unique<LoggedDevice>(
      rdma::loopback::make_device(lab.fabric, {.name = "broken", .refuse_invalidation = true}), lab.log);
  OpLog& log = lab.log;
  rpcrdma::EngineConfig config;
  config.max_connections = 1;
  config.capacity.requests = 8;
  rpcrdma::Engine engine(*broken, config);
  rpcrdma::Requester requester(engine.requester_context(), *broken, {.requests = 8});
  RawPeer peer(*lab.raw_device, 1024, 16);
  auto raw_qp = peer.make_queue_pair();
  auto* connection = engine.free_connection();
  auto qp = broken->create_queue_pair(engine.queue_pair_limits());
  auto& ref = *qp;
  connection->open(std::move(qp), {.credit_grant = 0, .credits_requested = 8, .active = true}, {},
                   &requester);
  auto& cm = *broken->connection_manager();
  auto& raw_cm = *lab.raw_device->connection_manager();
  ASSERT_TRUE(cm.connect(ref, kPort, {}));
  rdma::CmEvent events[4];
  for (int i = 0; i < 20; ++i) {
    std::size_t count = raw_cm.poll_events(events);
    for (const auto& event : std::span(events, count))
      if (event.type == rdma::CmEventType::ConnectRequest) {
        ASSERT_TRUE(raw_cm.accept(event.id, *raw_qp, {}));
      }
    count = cm.poll_events(events);
    for (const auto& event : std::span(events, count))
      if (event.type == rdma::CmEventType::Established) connection->established();
  }
  ASSERT_TRUE(requester.connected());
  const rdma::MemoryRegion memory = broken->allocate_memory(4096);
  const rdma::Sge piece{memory.bytes.data(), 64, memory.lkey};
  const rpcrdma::WriteItem item{{&piece, 1}};
  struct Seen {
    rpcrdma::Connection* connection;
    bool open_at_completion = true;
    int completions = 0;
  } seen{connection};
  const Bytes payload = null_call();
  const auto xid = requester.submit({.payload = payload,
                                     .writes = {&item, 1},
                                     .max_reply_bytes = 64,
                                     .completion =
                                         [](void* context, const rpcrdma::Reply&) noexcept {
                                           auto& s = *static_cast<Seen*>(context);
                                           ++s.completions;
                                           s.open_at_completion = s.connection->is_open();
                                         },
                                     .context = &seen});
  ASSERT_TRUE(xid);
  for (int i = 0; i < 20; ++i) engine.poll(1), peer.poll();
  peer.send(ClientLab::success(static_cast<std::uint32_t>(*xid), 4));
  for (int i = 0; i < 50; ++i) engine.poll(1), peer.poll();
  EXPECT_EQ(seen.completions, 1);
  EXPECT_FALSE(seen.open_at_completion);
  EXPECT_EQ(connection->close_reason(), rpcrdma::CloseReason::InvalidationError);
  static_cast<void>(log);
  raw_qp.reset();
}

TEST(RequesterMemory, V1_136_the_requester_never_reads_or_writes_the_responder) {
  ClientLab lab;
  OfferedCall call;
  const std::uint32_t xid = submit_offered(lab, call);
  lab.peer->send(RawCall{.xid = xid, .credits = 4}.with(accepted(xid)));
  lab.settle();
  EXPECT_EQ(lab.log.count(OpKind::PostRead) + lab.log.count(OpKind::PostWrite), 0u);
}

TEST(RequesterReconnect,
     V1_059_V1_152_V1_153_V1_156_pending_calls_are_sent_again_with_their_xids_and_fresh_handles) {
  ClientLab lab;
  const CallerMemory memory = caller_memory(lab, 4096);
  const rdma::Sge piece = memory.piece(0, 64);
  const rpcrdma::WriteItem item{{&piece, 1}};
  lab.submit_null();
  lab.settle();
  lab.peer->send(ClientLab::success(xid_of(got(lab, 0)), 32));
  lab.settle();
  for (int i = 0; i < 3; ++i)
    lab.submit({.payload = null_call(), .writes = {&item, 1}, .max_reply_bytes = 64});
  lab.settle();
  ASSERT_EQ(lab.peer->inbox.size(), 4u);
  std::vector<std::uint32_t> xids;
  std::vector<rdma::Rkey> handles;
  for (std::size_t i = 1; i < 4; ++i) {
    xids.push_back(xid_of(got(lab, i)));
    handles.push_back(offer_in(got(lab, i)).writes.at(0).at(0).handle);
  }
  lab.disconnect();
  EXPECT_EQ(lab.finished.size(), 1u);  // no call is reported as lost
  lab.log.clear();
  lab.connect();
  ASSERT_EQ(lab.peer->inbox.size(), 1u);  // there is one initial credit
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(xid_of(got(lab, i)), xids[i]);
    EXPECT_NE(offer_in(got(lab, i)).writes.at(0).at(0).handle, handles[i]);
    lab.peer->send(RawCall{.xid = xids[i], .credits = 1}.with(accepted(xids[i])));
    lab.settle();
  }
  EXPECT_EQ(lab.finished.size(), 4u);
  for (const Finished& finished : lab.finished) EXPECT_EQ(finished.status, CallStatus::Ok);
}

TEST(RequesterMemory, V1_121_a_reply_that_is_kept_stays_as_it_is_until_it_is_given_back) {
  ClientLab lab;
  std::vector<std::byte*> kept;
  lab.on_reply = [&](const rpcrdma::Reply& reply) { kept.push_back(lab.requester->keep_reply(reply)); };
  const auto answer = [&](std::size_t n, std::uint32_t fill) {
    const std::uint32_t xid = xid_of(got(lab, n));
    Bytes reply = accepted(xid);
    append(reply, words({fill}));
    Offer offer = offer_in(got(lab, n));
    lab.peer->write_remote(offer.reply->at(0), reply);
    offer.reply->at(0).length = static_cast<std::uint32_t>(reply.size());
    lab.peer->send(RawCall{.xid = xid, .credits = 8, .proc = 1, .reply = *offer.reply}.header());
    lab.settle();
    return reply;
  };
  for (std::size_t i = 0; i < 2; ++i) {
    lab.submit({.payload = null_call(), .max_reply_bytes = 64, .offer_reply_chunk = true});
    lab.settle();
    const Bytes reply = answer(i, static_cast<std::uint32_t>(i));
    ASSERT_EQ(kept.size(), i + 1);
    ASSERT_NE(kept[i], nullptr);
    EXPECT_EQ(Bytes(kept[i], kept[i] + reply.size()), reply);
  }
  EXPECT_EQ(xdr::load_u32(kept[0] + 24), 0u);  // the second reply was not written there
  lab.submit_null();
  lab.settle();
  lab.peer->send(ClientLab::success(xid_of(got(lab, 2)), 8));
  lab.settle();
  EXPECT_EQ(kept.at(2), nullptr);  // the reply was inline
  EXPECT_FALSE(lab.requester->balanced());
  lab.requester->release_reply(kept[0]);
  lab.requester->release_reply(kept[1]);
  EXPECT_TRUE(lab.requester->balanced());
}

TEST(RequesterReconnect, V1_152_a_call_that_may_be_sent_once_ends_with_the_connection_that_it_was_sent_on) {
  ClientLab lab;
  const CallerMemory memory = caller_memory(lab, 4096);
  const rdma::Sge piece = memory.piece(0, 64);
  const rpcrdma::WriteItem item{{&piece, 1}};
  // There is one credit: the first call is outstanding when the connection ends, the others have not been
  // sent.
  for (int i = 0; i < 3; ++i)
    lab.submit({.payload = null_call(), .writes = {&item, 1}, .max_reply_bytes = 64, .send_once = i != 1});
  lab.settle();
  ASSERT_EQ(lab.peer->inbox.size(), 1u);
  lab.disconnect();
  ASSERT_EQ(lab.finished.size(), 1u);
  EXPECT_EQ(lab.finished[0].status, CallStatus::ConnectionLost);
  lab.connect();
  for (std::size_t i = 0; i < 2; ++i) {
    const std::uint32_t xid = xid_of(got(lab, i));
    lab.peer->send(RawCall{.xid = xid, .credits = 1}.with(accepted(xid)));
    lab.settle();
    EXPECT_EQ(lab.finished.back().status, CallStatus::Ok);
  }
  EXPECT_EQ(lab.finished.size(), 3u);
  EXPECT_TRUE(lab.requester->balanced());
}

TEST(RequesterReconnect, V1_153_a_late_write_on_the_old_connection_is_refused) {
  ClientLab lab;
  const CallerMemory memory = caller_memory(lab, 4096);
  const rdma::Sge piece = memory.piece(0, 64);
  const rpcrdma::WriteItem item{{&piece, 1}};
  lab.submit({.payload = null_call(), .writes = {&item, 1}, .max_reply_bytes = 64});
  lab.settle();
  const auto segment = offer_in(got(lab, 0)).writes.at(0).at(0);
  lab.connection->close(rpcrdma::CloseReason::LocalClose);
  lab.peer->write_remote(segment, Bytes(64, std::byte{0x66}));
  lab.settle();
  EXPECT_TRUE(lab.peer->failed);
  EXPECT_NE(memory.region.bytes[0], std::byte{0x66});
}

}  // namespace
}  // namespace sluice::conformance
