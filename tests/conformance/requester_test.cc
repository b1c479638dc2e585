// SPDX-License-Identifier: Apache-2.0
//
// Requirement rows at the requester, judged by a raw server: credits, shapes, bad replies, memory,
// reconnects.
#include <gtest/gtest.h>

#include <numeric>
#include <set>

#include "dataplane/ulb/nfs3.h"
#include "tests/conformance/raw_call.h"
#include "tests/golden/v1_vectors.h"

namespace sluice::conformance {
namespace {

using rpcrdma::CallStatus;
using Where = rpcrdma::ItemResult::Where;

Bytes null_call() {
  return rpc_call(0, kTestProgram, 1, 0);
}

/// Memory of the caller, registered.
struct CallerMemory {
  rdma::MemoryRegion region;
  rdma::Sge piece(std::uint32_t from, std::uint32_t bytes) const {
    return {region.bytes.data() + from, bytes, region.lkey};
  }
};
CallerMemory caller_memory(ClientLab& lab, std::size_t bytes) {
  return {lab.device->allocate_memory(bytes)};
}

/// What the raw server got: the n-th message.
const Bytes& got(ClientLab& lab, std::size_t n) {
  return lab.peer->inbox.at(n).bytes;
}
std::uint32_t xid_of(const Bytes& message) {
  return word_at(message, 0);
}

TEST(RequesterCredits, V1_040_V1_046_V1_053_one_call_until_the_first_reply) {
  ClientLab lab;
  for (int i = 0; i < 50; ++i) ASSERT_TRUE(lab.submit_null());
  lab.settle();
  ASSERT_EQ(lab.peer->inbox.size(), 1u);
  EXPECT_EQ(word_at(got(lab, 0), 2), 32u);
  lab.peer->send(ClientLab::success(xid_of(got(lab, 0)), 8));
  lab.settle();
  EXPECT_EQ(lab.peer->inbox.size(), 1u + 8u);
  for (const auto& call : lab.peer->inbox) EXPECT_EQ(word_at(call.bytes, 2), 32u);
}

TEST(RequesterCredits, V1_043_V1_044_V1_045_V1_049_the_latest_grant_limits_what_is_outstanding) {
  ClientLab lab;
  for (int i = 0; i < 60; ++i) lab.submit_null();
  lab.settle();
  std::size_t answered = 0;
  const auto answer = [&](std::uint32_t grant) {
    lab.peer->send(ClientLab::success(xid_of(got(lab, answered++)), grant));
    lab.settle();
  };
  answer(0xFFFFFFFF);
  EXPECT_EQ(lab.requester->outstanding(), 32u);  // clamped by what was asked for
  answer(2);
  EXPECT_EQ(lab.requester->outstanding(), 31u);
  while (lab.requester->outstanding() > 2) answer(2);
  const std::size_t sent = lab.peer->inbox.size();
  EXPECT_EQ(sent, answered + 2);
  answer(8);
  EXPECT_EQ(lab.requester->outstanding(), 8u);
}

TEST(RequesterCredits, V1_055_A_13_a_zero_grant_never_stops_the_only_call) {
  ClientLab lab;
  for (int i = 0; i < 6; ++i) lab.submit_null();
  lab.settle();
  lab.peer->send(ClientLab::success(xid_of(got(lab, 0)), 3));
  lab.settle();
  ASSERT_EQ(lab.peer->inbox.size(), 4u);
  for (std::size_t i = 1; i < 4; ++i) {
    lab.peer->send(ClientLab::success(xid_of(got(lab, i)), 0));
    lab.settle();
  }
  ASSERT_EQ(lab.peer->inbox.size(), 5u);  // alone
  EXPECT_EQ(lab.requester->outstanding(), 1u);
}

TEST(RequesterCredits, V1_030_V1_174_errors_end_their_call_and_leave_the_limit_alone) {
  ClientLab lab;
  for (int i = 0; i < 4; ++i) lab.submit_null();
  lab.settle();
  const auto err_chunk = [](std::uint32_t xid) { return words({xid, 1, 1000, 4, 2}); };
  lab.peer->send(err_chunk(0x00BADBAD));  // of nobody
  lab.settle();
  EXPECT_EQ(lab.peer->inbox.size(), 1u);
  lab.peer->send(err_chunk(xid_of(got(lab, 0))));
  lab.settle();
  ASSERT_EQ(lab.finished.size(), 1u);
  EXPECT_EQ(lab.finished[0].status, CallStatus::ChunkError);
  EXPECT_EQ(lab.peer->inbox.size(), 2u);  // one credit, still
  EXPECT_EQ(static_cast<std::uint32_t>(lab.requester->granted()), 1u);
}

TEST(RequesterErrors, V1_027_V1_029_permanent_errors_reach_the_caller_once_and_nothing_is_sent_again) {
  ClientLab lab;
  lab.submit_null();
  lab.settle();
  lab.peer->send(words({xid_of(got(lab, 0)), 2, 16, 4, 1, 2, 2}));
  lab.settle();
  ASSERT_EQ(lab.finished.size(), 1u);
  EXPECT_EQ(lab.finished[0].status, CallStatus::VersionError);
  EXPECT_EQ(lab.finished[0].supported.low, 2u);
  EXPECT_EQ(lab.peer->inbox.size(), 1u);
}

TEST(RequesterErrors, V1_025_an_error_of_any_version_completes_the_call) {
  ClientLab lab;
  for (const std::uint32_t version : {1u, 2u, 7u}) {
    lab.finished.clear();
    lab.peer->inbox.clear();
    lab.submit_null();
    lab.settle();
    lab.peer->send(words({xid_of(got(lab, 0)), version, 16, 4, 1, 1, 1}));
    lab.settle();
    ASSERT_EQ(lab.finished.size(), 1u);
    EXPECT_EQ(lab.finished[0].status, CallStatus::VersionError);
  }
}

TEST(RequesterErrors, V1_028_V1_133_V1_155_strays_change_nothing_and_are_not_answered) {
  ClientLab lab;
  lab.submit_null();
  lab.settle();
  const std::uint32_t xid = xid_of(got(lab, 0));
  for (const Bytes& stray : {bytes_of(golden::kN15), bytes_of(golden::kN16), bytes_of(golden::kN17),
                             bytes_of(golden::kE7), bytes_of(golden::kE9), bytes_of(golden::kE8),
                             bytes_of(golden::kN1), ClientLab::success(0x00ABCDEF, 1000)})
    lab.peer->send(stray);
  lab.settle();
  EXPECT_EQ(lab.peer->inbox.size(), 1u);
  EXPECT_TRUE(lab.finished.empty());
  lab.peer->send(ClientLab::success(xid, 4));
  lab.peer->send(ClientLab::success(xid, 4));  // a duplicate
  lab.settle();
  EXPECT_EQ(lab.finished.size(), 1u);
  EXPECT_EQ(lab.finished[0].status, CallStatus::Ok);
}

/// A call with two Write chunks of two segments and a Reply chunk, as E3.
struct OfferedCall {
  CallerMemory memory;
  std::array<rdma::Sge, 4> pieces;
  std::array<rpcrdma::WriteItem, 2> items;
  Bytes payload = null_call();
};
std::uint32_t submit_offered(ClientLab& lab, OfferedCall& call, std::vector<std::uint32_t> counts = {}) {
  call.memory = caller_memory(lab, 16384);
  call.pieces = {call.memory.piece(0, 1024), call.memory.piece(2048, 1024), call.memory.piece(4096, 2048),
                 call.memory.piece(8192, 2048)};
  call.items[0].pieces = std::span(call.pieces).first(2);
  call.items[1].pieces = std::span(call.pieces).subspan(2);
  const auto xid = lab.submit(
      {.payload = call.payload, .writes = call.items, .max_reply_bytes = 256, .offer_reply_chunk = true},
      std::move(counts));
  lab.settle();
  return xid.value_or(0);
}

/// The chunk lists that the raw server received, to be returned with other lengths.
struct Offer {
  std::vector<std::vector<rpcrdma::Segment>> writes;
  std::optional<std::vector<rpcrdma::Segment>> reply;
  std::vector<rpcrdma::ReadSegment> reads;
};
Offer offer_in(const Bytes& call) {
  const auto decoded = rpcrdma::v1::decode(call);
  EXPECT_EQ(decoded.status, rpcrdma::v1::Decode::Ok);
  Offer offer;
  for (std::uint32_t i = 0; i < decoded.header.chunks.reads.size(); ++i)
    offer.reads.push_back(decoded.header.chunks.reads[i]);
  for (const auto chunk : decoded.header.chunks.writes) {
    offer.writes.emplace_back();
    for (std::uint32_t i = 0; i < chunk.size(); ++i) offer.writes.back().push_back(chunk[i]);
  }
  if (const auto& reply = decoded.header.chunks.reply) {
    offer.reply.emplace();
    for (std::uint32_t i = 0; i < reply->size(); ++i) offer.reply->push_back((*reply)[i]);
  }
  return offer;
}
void set_lengths(std::vector<rpcrdma::Segment>& chunk, std::initializer_list<std::uint32_t> lengths) {
  std::size_t i = 0;
  for (const std::uint32_t length : lengths) chunk[i++].length = length;
}
Bytes accepted(std::uint32_t xid, std::initializer_list<std::uint32_t> results = {}) {
  Bytes out = words({xid, 1, 0, 0, 0, 0});
  append(out, words(results));
  return out;
}

TEST(RequesterReplies, V1_098_V1_100_V1_104_V1_105_V1_121_V1_125_F_05_all_good_forms_give_the_same_result) {
  struct Form {
    std::uint32_t last;
    bool nomsg;
    bool with_reply_chunk;
  };
  for (const Form form : {Form{477, true, true}, Form{480, true, true}, Form{477, false, true},
                          Form{480, false, true}, Form{477, false, false}}) {
    ClientLab lab;
    OfferedCall call;
    const std::uint32_t xid = submit_offered(lab, call, {1501});
    Offer offer = offer_in(got(lab, 0));
    ASSERT_EQ(offer.writes.size(), 2u);
    Bytes data(1504);
    fill_pattern(data, 1);
    lab.peer->write_remote(offer.writes[0][0], std::span(data).first(1024));
    lab.peer->write_remote(offer.writes[0][1], std::span(data).subspan(1024, form.last));
    const Bytes results = accepted(xid, {0, 1501, 5});
    set_lengths(offer.writes[0], {1024, form.last});
    set_lengths(offer.writes[1], {0, 0});
    RawCall reply{.xid = xid, .credits = 16, .proc = form.nomsg ? 1u : 0u, .writes = offer.writes};
    if (form.with_reply_chunk) {
      reply.reply = offer.reply;
      set_lengths(*reply.reply, {form.nomsg ? static_cast<std::uint32_t>(results.size()) : 0});
    }
    if (form.nomsg) lab.peer->write_remote((*offer.reply)[0], results);
    lab.peer->send(form.nomsg ? reply.header() : reply.with(results));
    lab.settle();
    ASSERT_EQ(lab.finished.size(), 1u);
    EXPECT_EQ(lab.finished[0].status, CallStatus::Ok);
    EXPECT_EQ(lab.finished[0].message, results);
    EXPECT_EQ(lab.finished[0].items.at(0).where, Where::Placed);
    EXPECT_TRUE(has_pattern(call.memory.region.bytes.first(1024), 1));
    EXPECT_TRUE(
        std::equal(data.begin() + 1024, data.begin() + 1501, call.memory.region.bytes.begin() + 2048));
  }
}

TEST(RequesterReplies, V1_103_room_for_round_up_only_with_the_switch_and_never_in_the_callers_buffer) {
  for (const bool round_up : {false, true}) {
    LabOptions options;
    options.requester.round_up_write_chunks = round_up;
    options.requester.bounce_buffers = 2;
    ClientLab lab(options);
    const CallerMemory memory = caller_memory(lab, 4096);
    std::memset(memory.region.bytes.data(), 0xEE, 4096);
    const rdma::Sge piece = memory.piece(0, 1501);
    const rpcrdma::WriteItem item{{&piece, 1}};
    const Bytes payload = null_call();
    const auto xid = lab.submit({.payload = payload, .writes = {&item, 1}, .max_reply_bytes = 64}, {1501});
    lab.settle();
    Offer offer = offer_in(got(lab, 0));
    ASSERT_EQ(offer.writes.at(0).size(), 1u);
    EXPECT_EQ(offer.writes[0][0].length, round_up ? 1504u : 1501u);
    Bytes data(offer.writes[0][0].length);
    fill_pattern(data, 3);
    lab.peer->write_remote(offer.writes[0][0], data);
    lab.peer->send(RawCall{.xid = *xid, .writes = offer.writes}.with(accepted(*xid, {1501})));
    lab.settle();
    ASSERT_EQ(lab.finished.size(), 1u);
    EXPECT_EQ(lab.finished[0].items.at(0).where, Where::Placed);
    EXPECT_TRUE(std::equal(data.begin(), data.begin() + 1501, memory.region.bytes.begin()));
    EXPECT_EQ(memory.region.bytes[1501], std::byte{0xEE});
  }
}

TEST(RequesterShapes, F_03_scattered_items_go_as_one_segment_to_peers_that_take_no_more) {
  LabOptions options;
  options.requester.single_segment_chunks = true;
  options.requester.bounce_buffers = 1;
  ClientLab lab(options);
  const CallerMemory memory = caller_memory(lab, 32768);
  fill_pattern(memory.region.bytes, 5);
  const std::array<rdma::Sge, 3> argument = {memory.piece(0, 1000), memory.piece(4096, 24),
                                             memory.piece(8192, 977)};
  const std::array<rdma::Sge, 2> result = {memory.piece(16384, 600), memory.piece(20480, 600)};
  Bytes expected;
  for (const rdma::Sge& piece : argument)
    expected.insert(expected.end(), piece.address, piece.address + piece.length);
  Bytes payload = null_call();
  append(payload, words({static_cast<std::uint32_t>(expected.size())}));
  const rpcrdma::ReadItem read{rpcrdma::Position{static_cast<std::uint32_t>(payload.size())}, argument};
  const rpcrdma::WriteItem write{result};
  const rpcrdma::Request request{
      .payload = payload, .reads = {&read, 1}, .writes = {&write, 1}, .max_reply_bytes = 64};
  const auto xid = lab.submit(request, {1200});
  ASSERT_TRUE(xid);
  EXPECT_FALSE(lab.submit(request)) << "there is one bounce buffer: the second call waits for it";
  lab.settle();
  Offer offer = offer_in(got(lab, 0));
  ASSERT_EQ(offer.reads.size(), 1u);
  EXPECT_EQ(offer.reads[0].target.length, expected.size());
  ASSERT_EQ(offer.writes.at(0).size(), 1u);
  EXPECT_EQ(offer.writes[0][0].length, 1200u);
  const auto fetched = lab.peer->read_remote(offer.reads[0].target, expected.size());
  lab.settle();
  EXPECT_TRUE(std::equal(fetched.begin(), fetched.end(), expected.begin()));
  Bytes data(1200);
  fill_pattern(data, 9);
  lab.peer->write_remote(offer.writes[0][0], data);
  lab.peer->send(RawCall{.xid = *xid, .credits = 4, .writes = offer.writes}.with(accepted(*xid, {1200})));
  lab.settle();
  ASSERT_EQ(lab.finished.size(), 1u);
  EXPECT_EQ(lab.finished[0].items.at(0).where, Where::Placed);
  EXPECT_TRUE(std::equal(data.begin(), data.begin() + 600, memory.region.bytes.begin() + 16384));
  EXPECT_TRUE(std::equal(data.begin() + 600, data.end(), memory.region.bytes.begin() + 20480));
  EXPECT_TRUE(lab.submit(request));
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

TEST(RequesterReplies, V1_109_F_07_a_failed_read_does_not_care_what_its_chunk_looks_like) {
  for (const int form : {0, 1, 2}) {
    ClientLab lab;
    OfferedCall call;
    const std::uint32_t xid = submit_offered(lab, call);
    Offer offer = offer_in(got(lab, 0));
    if (form == 0) offer.writes = {{}, {}};  // zero segments
    if (form == 1) set_lengths(offer.writes[0], {0, 0}), set_lengths(offer.writes[1], {0, 0});
    lab.peer->send(RawCall{.xid = xid, .credits = 4, .writes = offer.writes}.with(
        accepted(xid, {5})));  // form 2: as offered
    lab.settle();
    ASSERT_EQ(lab.finished.size(), 1u);
    EXPECT_EQ(lab.finished[0].status, CallStatus::Ok) << form;
    EXPECT_EQ(lab.finished[0].message, accepted(xid, {5}));
  }
}

TEST(RequesterReplies, V1_190_data_that_came_inline_is_found_there) {
  ClientLab lab;
  OfferedCall call;
  const std::uint32_t xid = submit_offered(lab, call, {8});
  Offer offer = offer_in(got(lab, 0));
  set_lengths(offer.writes[0], {0, 0});
  set_lengths(offer.writes[1], {0, 0});
  lab.peer->send(
      RawCall{.xid = xid, .credits = 4, .writes = offer.writes}.with(accepted(xid, {0, 8, 1, 2, 5})));
  lab.settle();
  ASSERT_EQ(lab.finished.size(), 1u);
  EXPECT_EQ(lab.finished[0].items.at(0).where, Where::Inline);
}

TEST(RequesterReplies,
     V1_036_V1_110_V1_091_V1_122_F_19_F_20_contradictory_replies_end_their_call_with_an_error) {
  const auto with_offered = [](const auto& spoil) {
    ClientLab lab;
    OfferedCall call;
    const std::uint32_t xid = submit_offered(lab, call);
    const Offer offer = offer_in(got(lab, 0));
    RawCall reply{.xid = xid, .credits = 16, .writes = offer.writes};
    for (auto& chunk : reply.writes) set_lengths(chunk, {0, 0});
    const Bytes payload = spoil(reply, offer);
    lab.log.clear();
    lab.peer->send(payload.empty() ? reply.header() : reply.with(payload));
    lab.settle();
    EXPECT_EQ(lab.finished.size(), 1u);
    if (lab.finished.size() != 1) return;
    EXPECT_EQ(lab.finished[0].status, CallStatus::UnusableReply);
    EXPECT_EQ(lab.peer->inbox.size(), 1u);  // nothing sent again, no RDMA_ERROR, no RDMA_DONE
    EXPECT_EQ(lab.log.count(OpKind::PostRead), 0u);
    // The connection goes on.
    lab.submit_null();
    lab.settle();
    EXPECT_EQ(lab.peer->inbox.size(), 2u);
  };
  // N18: a length above what was offered.
  with_offered([](RawCall& r, const Offer&) { return r.writes[0][0].length = 1025, accepted(r.xid); });
  // N21: a used chunk with another number of segments.
  with_offered([](RawCall& r, const Offer&) {
    return r.writes[0].pop_back(), r.writes[0][0].length = 1024, accepted(r.xid);
  });
  // More chunks than offered.
  with_offered([](RawCall& r, const Offer& o) { return r.writes.push_back(o.writes[0]), accepted(r.xid); });
  // N19: a Read list.
  with_offered([](RawCall& r, const Offer& o) {
    return r.reads.push_back({24, o.writes[0][0]}), accepted(r.xid);
  });
  // RDMA_NOMSG: no Reply chunk, one that sums to nothing, to 8 bytes, to more than offered.
  with_offered([](RawCall& r, const Offer&) { return r.proc = 1, Bytes{}; });
  for (const std::uint32_t length : {0u, 8u, 100000u})
    with_offered([length](RawCall& r, const Offer& o) {
      r.proc = 1;
      r.reply = o.reply;
      (*r.reply)[0].length = length;
      return Bytes{};
    });
  // An XID inside that differs, and nothing inside at all.
  with_offered([](RawCall& r, const Offer&) { return accepted(r.xid + 1); });
}

TEST(RequesterReplies, V1_091_V1_122_N19_and_N20_against_a_call_without_chunks) {
  for (const auto vector : {std::span<const std::uint32_t>(golden::kN19), {golden::kN20}}) {
    ClientLab lab;
    lab.submit_null();
    lab.settle();
    Bytes message = bytes_of(vector);
    xdr::store_u32(message.data(), xid_of(got(lab, 0)));
    lab.peer->send(message);
    lab.settle();
    ASSERT_EQ(lab.finished.size(), 1u);
    EXPECT_EQ(lab.finished[0].status, CallStatus::UnusableReply);
  }
}

TEST(RequesterReplies, V1_036_A_35_messages_that_cannot_be_parsed_end_the_call_they_name) {
  for (const auto vector : {std::span<const std::uint32_t>(golden::kN3),
                            {golden::kN4},
                            {golden::kN6},
                            {golden::kN14},
                            {golden::kN2}}) {
    ClientLab lab;
    lab.submit_null();
    lab.settle();
    Bytes message = bytes_of(vector);
    xdr::store_u32(message.data(), xid_of(got(lab, 0)));
    lab.peer->send(message);
    lab.settle();
    ASSERT_EQ(lab.finished.size(), 1u);
    EXPECT_EQ(lab.finished[0].status, CallStatus::UnusableReply);
    EXPECT_EQ(lab.peer->inbox.size(), 1u);
  }
}

// --- Shapes

TEST(RequesterShapes, V1_005_V1_040_V1_084_V1_072_a_write_is_E2) {
  LabOptions options;
  ClientLab lab(options);
  const CallerMemory memory = caller_memory(lab, 16384);
  const rdma::Sge pieces[] = {memory.piece(0, 4096), memory.piece(8192, 905)};
  Bytes payload = bytes_of(std::span(golden::kE2).subspan(19));
  const rpcrdma::ReadItem item{rpcrdma::Position{96}, pieces};
  lab.submit({.payload = payload, .reads = {&item, 1}, .max_reply_bytes = 200});
  lab.settle();
  Bytes expected = bytes_of(golden::kE2);
  Bytes message = got(lab, 0);
  ASSERT_EQ(message.size(), expected.size());
  const Offer offer = offer_in(message);
  EXPECT_EQ(offer.reads.at(0).target.length + offer.reads.at(1).target.length, 5001u);  // no padding anywhere
  // XID, handles and offsets are ours and the driver's; everything else is E2.
  for (const std::size_t word : {0u, 6u, 8u, 9u, 12u, 14u, 15u, 19u}) {
    xdr::store_u32(expected.data() + word * 4, 0);
    xdr::store_u32(message.data() + word * 4, 0);
  }
  EXPECT_EQ(message, expected);
}

TEST(RequesterShapes, V1_009_V1_062_V1_064_V1_066_V1_112_threshold_decides_between_short_and_long) {
  ClientLab lab;  // the peer is unknown: 1024
  const std::pair<std::uint32_t, std::uint32_t> cases[] = {{1024 - 28, 0}, {1024 - 28 + 4, 1}};
  for (const auto& [bytes, proc] : cases) {
    lab.peer->inbox.clear();
    Bytes payload = null_call();
    payload.resize(bytes);
    fill_pattern(std::span(payload).subspan(40), 1);
    const auto xid = lab.submit({.payload = payload, .max_reply_bytes = 64});
    lab.settle();
    ASSERT_EQ(lab.peer->inbox.size(), 1u);
    EXPECT_EQ(word_at(got(lab, 0), 3), proc);
    EXPECT_LE(got(lab, 0).size(), 1024u);
    if (proc == 1) {
      const Offer offer = offer_in(got(lab, 0));
      ASSERT_EQ(offer.reads.size(), 1u);
      EXPECT_EQ(offer.reads[0].position, rpcrdma::Position{0});
      EXPECT_EQ(offer.reads[0].target.length, bytes);
    }
    lab.peer->send(ClientLab::success(*xid, 8));
    lab.settle();
  }
  EXPECT_EQ(lab.finished.size(), 2u);
}

TEST(RequesterShapes, V1_005_V1_013_V1_138_long_call_content_starts_with_the_xid) {
  ClientLab lab;
  Bytes payload = null_call();
  payload.resize(3000);
  const auto xid = lab.submit({.payload = payload, .max_reply_bytes = 64, .as_long_call = true});
  lab.settle();
  const Offer offer = offer_in(got(lab, 0));
  lab.peer->read_remote({offer.reads[0].target.handle, 4, offer.reads[0].target.offset}, 4);
  lab.settle();
  EXPECT_FALSE(lab.peer->failed);
  EXPECT_EQ(xdr::load_u32(reinterpret_cast<const std::byte*>(offer.reads[0].target.offset)), *xid);
}

TEST(RequesterShapes, V1_067_V1_168_F_13_a_header_that_cannot_fit_fails_locally) {
  LabOptions options;
  options.requester.max_segment_bytes = 4096;
  ClientLab lab(options);
  const CallerMemory memory = caller_memory(lab, 1 << 20);
  std::uint32_t sent = 0;
  for (std::uint32_t bytes = 4096; bytes <= 1 << 20; bytes *= 2) {
    const rdma::Sge piece = memory.piece(0, bytes);
    const rpcrdma::ReadItem item{rpcrdma::Position{44}, {&piece, 1}};
    Bytes payload = test_call(0, TestService::kSink, {bytes});
    const std::size_t before = lab.finished.size();
    const auto xid = lab.submit({.payload = payload, .reads = {&item, 1}, .max_reply_bytes = 64});
    lab.settle();
    if (bytes / 4096 * 24 + 28 + 24 > 1024) {
      ASSERT_EQ(lab.finished.size(), before + 1);
      EXPECT_EQ(lab.finished.back().status, CallStatus::TooLarge);
    } else {
      ++sent;
      EXPECT_LE(got(lab, lab.peer->inbox.size() - 1).size(), 1024u);
      lab.peer->send(ClientLab::success(*xid, 8));
      lab.settle();
    }
  }
  EXPECT_EQ(lab.peer->inbox.size(), sent);
}

TEST(RequesterShapes, V1_118_V1_119_V1_177_A_20_F_15_reply_chunk_exactly_when_the_reply_may_not_fit) {
  ClientLab lab;
  lab.options.connection.receive_inline_bytes = 1024;
  lab.disconnect();
  lab.connect();
  const Bytes payload = null_call();
  for (const auto& [bytes, expected] :
       {std::pair{996u, false}, std::pair{997u, true}, std::pair{8000u, true}}) {
    lab.peer->inbox.clear();
    const auto xid = lab.submit({.payload = payload, .max_reply_bytes = bytes});
    lab.settle();
    const Offer offer = offer_in(got(lab, 0));
    EXPECT_EQ(offer.reply.has_value(), expected) << bytes;
    if (expected) {
      EXPECT_GE((*offer.reply)[0].length, bytes);
    }
    lab.peer->send(ClientLab::success(*xid, 1));
    lab.settle();
  }
}

TEST(RequesterShapes, V1_056_V1_130_shortage_of_windows_delays_a_call) {
  LabOptions options;
  options.requester.windows = 2;
  ClientLab lab(options);
  const CallerMemory memory = caller_memory(lab, 4096);
  const rdma::Sge piece = memory.piece(0, 64);
  const rpcrdma::WriteItem item{{&piece, 1}};
  const Bytes payload = null_call();
  for (int i = 0; i < 5; ++i) lab.submit({.payload = payload, .writes = {&item, 1}, .max_reply_bytes = 64});
  lab.settle();
  lab.peer->send(RawCall{.xid = xid_of(got(lab, 0)), .credits = 16}.with(accepted(xid_of(got(lab, 0)))));
  lab.settle();
  EXPECT_EQ(lab.requester->outstanding(), 2u);
  for (std::size_t i = 1; i < 5; ++i) {
    lab.peer->send(RawCall{.xid = xid_of(got(lab, i)), .credits = 16}.with(accepted(xid_of(got(lab, i)))));
    lab.settle();
  }
  EXPECT_EQ(lab.finished.size(), 5u);
}

TEST(RequesterShapes, V1_092_V1_103_V1_195_V1_197_V1_193_V1_192_nfs_shapes_and_estimates) {
  // READ of count N: the caller gives N bytes, and that is what is offered, without room for padding.
  ClientLab lab;
  const CallerMemory memory = caller_memory(lab, 4096);
  const rdma::Sge piece = memory.piece(0, 1501);
  const rpcrdma::WriteItem item{{&piece, 1}};
  lab.submit({.payload = null_call(), .writes = {&item, 1}, .max_reply_bytes = 200});
  lab.settle();
  EXPECT_EQ(offer_in(got(lab, 0)).writes.at(0).at(0).length, 1501u);
  const auto& binding = ulb::nfs3_binding();
  EXPECT_EQ(binding.procedure(ulb::kNfs3Read).eligible_results, 1);
  EXPECT_EQ(binding.procedure(ulb::kNfs3Write).eligible_arguments, 1);
  EXPECT_EQ(binding.procedure(ulb::kNfs3SymLink).eligible_arguments, 1);
  EXPECT_EQ(binding.procedure(ulb::kNfs3ReadDir).eligible_results, 0);
  Bytes readdir(4 + 24 + 16 + 4);
  xdr::Writer writer(readdir);
  writer.opaque(std::array<std::byte, 24>{});
  writer.u64(0);
  writer.u64(0);
  writer.u32(8192);
  EXPECT_GE(binding.max_results_bytes(ulb::kNfs3ReadDir, readdir), 8192u + 88);
  EXPECT_EQ(binding.max_results_bytes(ulb::kNfs3ReadDir, {}),
            binding.max_results_bytes(ulb::kNfs3ReadDir, {}));
}

TEST(RequesterShapes, V1_071_adjacent_items_are_two_chunks_at_two_positions) {
  ClientLab lab;
  const CallerMemory memory = caller_memory(lab, 4096);
  const rdma::Sge first = memory.piece(0, 5);
  const rdma::Sge second = memory.piece(1024, 8);
  // Counts at 40 and 52; the first item's round-up is in the unreduced message (V1-077).
  const rpcrdma::ReadItem items[] = {{rpcrdma::Position{44}, {&first, 1}},
                                     {rpcrdma::Position{56}, {&second, 1}}};
  const Bytes payload = test_call(0, TestService::kTwoSinks, {5, 8});
  lab.submit({.payload = payload, .reads = items, .max_reply_bytes = 64});
  lab.settle();
  const Offer offer = offer_in(got(lab, 0));
  ASSERT_EQ(offer.reads.size(), 2u);
  EXPECT_EQ(offer.reads[0].position, rpcrdma::Position{44});
  EXPECT_EQ(offer.reads[0].target.length, 5u);
  EXPECT_EQ(offer.reads[1].position, rpcrdma::Position{56});
  EXPECT_EQ(offer.reads[1].target.length, 8u);
}

TEST(RequesterShapes, V1_074_optional_data_keeps_its_discriminator_inline) {
  ClientLab lab;
  const CallerMemory memory = caller_memory(lab, 4096);
  const rdma::Sge data = memory.piece(0, 64);
  const rpcrdma::ReadItem item{rpcrdma::Position{48}, {&data, 1}};
  // Present: the word 1 and the count stay, the data moves. Absent: the word 0, and no chunk.
  const Bytes present = test_call(0, TestService::kSink, {1, 64});
  lab.submit({.payload = present, .reads = {&item, 1}, .max_reply_bytes = 64});
  lab.settle();
  EXPECT_EQ(word_at(got(lab, 0), (28 + 24 + 40) / 4), 1u);
  EXPECT_EQ(offer_in(got(lab, 0)).reads.size(), 1u);
  lab.peer->send(ClientLab::success(xid_of(got(lab, 0)), 4));
  lab.settle();
  const Bytes absent = test_call(0, TestService::kSink, {0});
  lab.submit({.payload = absent, .max_reply_bytes = 64});
  lab.settle();
  EXPECT_EQ(word_at(got(lab, 1), (28 + 40) / 4), 0u);
  EXPECT_TRUE(offer_in(got(lab, 1)).reads.empty());
}

TEST(RequesterShapes, V1_070_V1_075_V1_183_V1_184_V1_185_V1_186_V1_187_bindings_name_items_and_bounds) {
  const rpcrdma::Binding empty{.program = 1, .version = 1};
  for (std::uint32_t procedure : {0u, 1u, 1000u}) {
    EXPECT_EQ(empty.procedure(procedure).eligible_arguments, 0);
    EXPECT_EQ(empty.procedure(procedure).eligible_results, 0);
  }
  EXPECT_EQ(empty.max_results_bytes, nullptr);  // the caller has to give the size: Request::max_reply_bytes
  EXPECT_NE(ulb::nfs3_binding().max_results_bytes, nullptr);
}

// --- Memory

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
  EXPECT_GE(handles.size(), 48u);  // 20 of their bits are random: now and then two are the same
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
  // No binding covers bytes of the Send (V1-003).
  for (const Op& bind : binds) EXPECT_NE(bind.remote_address, 0u);
  lab.peer->write_remote(offer_in(got(lab, 0)).reads.at(0).target, Bytes(8, std::byte{1}));
  lab.settle();
  EXPECT_EQ(lab.peer->first_error, rdma::WcStatus::RemoteAccessError);
}

TEST(RequesterMemory, V1_142_V1_108_cancelled_and_timed_out_calls_are_fenced_too) {
  for (const bool cancel : {true, false}) {
    ClientLab lab;
    const CallerMemory memory = caller_memory(lab, 4096);
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
    EXPECT_EQ(lab.log.count(OpKind::InvalidateDone), 1u);
    // Its credit is with the server until that answers: the next call has to wait (V1-043).
    lab.submit_null();
    lab.settle();
    EXPECT_EQ(lab.peer->inbox.size(), 1u);
    lab.peer->send(ClientLab::success(*xid, 4));
    lab.settle();
    EXPECT_EQ(lab.peer->inbox.size(), 2u);
    EXPECT_EQ(lab.finished.size(), 1u);
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
  rpcrdma::Requester requester(engine.shared(), *broken, {.requests = 8});
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

// --- Reconnects

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
  EXPECT_EQ(lab.finished.size(), 1u);  // nothing is reported as lost
  lab.log.clear();
  lab.connect();
  ASSERT_EQ(lab.peer->inbox.size(), 1u);  // one credit at first
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(xid_of(got(lab, i)), xids[i]);
    EXPECT_NE(offer_in(got(lab, i)).writes.at(0).at(0).handle, handles[i]);
    lab.peer->send(RawCall{.xid = xids[i], .credits = 1}.with(accepted(xids[i])));
    lab.settle();
  }
  EXPECT_EQ(lab.finished.size(), 4u);
  for (const Finished& finished : lab.finished) EXPECT_EQ(finished.status, CallStatus::Ok);
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
