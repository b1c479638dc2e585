// SPDX-License-Identifier: Apache-2.0
//
// Requirement rows at the requester, against a raw server: valid and faulty replies.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "tests/conformance/raw_server.h"
#include "tests/golden/v1_vectors.h"

namespace sluice::conformance {
namespace {

using rpcrdma::CallStatus;
using Where = rpcrdma::ItemResult::Where;

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

TEST(RequesterReplies, V1_109_F_07_a_failed_read_does_not_care_what_its_chunk_looks_like) {
  for (const int form : {0, 1, 2}) {
    ClientLab lab;
    OfferedCall call;
    const std::uint32_t xid = submit_offered(lab, call);
    Offer offer = offer_in(got(lab, 0));
    if (form == 0) offer.writes = {{}, {}};  // form 0: no segments
    if (form == 1) set_lengths(offer.writes[0], {0, 0}), set_lengths(offer.writes[1], {0, 0});
    lab.peer->send(RawCall{.xid = xid, .credits = 4, .writes = offer.writes}.with(
        accepted(xid, {5})));  // form 2: lengths as offered
    lab.settle();
    ASSERT_EQ(lab.finished.size(), 1u);
    EXPECT_EQ(lab.finished[0].status, CallStatus::Ok) << form;
    EXPECT_EQ(lab.finished[0].message, accepted(xid, {5}));
  }
}

TEST(RequesterReplies, V1_110_V1_126_a_write_chunk_with_a_gap_is_no_result) {
  struct Form {
    std::array<std::uint32_t, 3> lengths;
    CallStatus status;
  };
  for (const Form& form :
       {Form{{512, 512, 476}, CallStatus::Ok}, Form{{512, 476, 0}, CallStatus::Ok},
        Form{{0, 0, 0}, CallStatus::Ok}, Form{{476, 512, 512}, CallStatus::UnusableReply},
        Form{{512, 0, 512}, CallStatus::UnusableReply}, Form{{0, 4, 0}, CallStatus::UnusableReply}}) {
    ClientLab lab;
    const CallerMemory memory = caller_memory(lab, 4096);
    const std::array pieces{memory.piece(0, 512), memory.piece(1024, 512), memory.piece(2048, 512)};
    const rpcrdma::WriteItem item{pieces};
    const std::uint32_t sum = form.lengths[0] + form.lengths[1] + form.lengths[2];
    const auto xid = lab.submit({.payload = null_call(), .writes = {&item, 1}, .max_reply_bytes = 64}, {sum});
    lab.settle();
    Offer offer = offer_in(got(lab, 0));
    for (std::size_t i = 0; i < 3; ++i) offer.writes.at(0).at(i).length = form.lengths[i];
    lab.peer->send(RawCall{.xid = *xid, .credits = 4, .writes = offer.writes}.with(accepted(*xid)));
    lab.settle();
    ASSERT_EQ(lab.finished.size(), 1u);
    EXPECT_EQ(lab.finished[0].status, form.status)
        << form.lengths[0] << " " << form.lengths[1] << " " << form.lengths[2];
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
    EXPECT_EQ(lab.peer->inbox.size(), 1u);  // no retransmission, no RDMA_ERROR, no RDMA_DONE
    EXPECT_EQ(lab.log.count(OpKind::PostRead), 0u);
    // The connection stays open.
    lab.submit_null();
    lab.settle();
    EXPECT_EQ(lab.peer->inbox.size(), 2u);
  };
  // N18: a length greater than offered.
  with_offered([](RawCall& r, const Offer&) { return r.writes[0][0].length = 1025, accepted(r.xid); });
  // N21: a used chunk with another number of segments.
  with_offered([](RawCall& r, const Offer&) {
    return r.writes[0].pop_back(), r.writes[0][0].length = 1024, accepted(r.xid);
  });
  // The reply has more chunks than offered.
  with_offered([](RawCall& r, const Offer& o) { return r.writes.push_back(o.writes[0]), accepted(r.xid); });
  // N19: a Read list.
  with_offered([](RawCall& r, const Offer& o) {
    return r.reads.push_back({24, o.writes[0][0]}), accepted(r.xid);
  });
  // RDMA_NOMSG without a Reply chunk, or with a Reply chunk of 0, 8, or more bytes than offered.
  with_offered([](RawCall& r, const Offer&) { return r.proc = 1, Bytes{}; });
  for (const std::uint32_t length : {0u, 8u, 100000u})
    with_offered([length](RawCall& r, const Offer& o) {
      r.proc = 1;
      r.reply = o.reply;
      (*r.reply)[0].length = length;
      return Bytes{};
    });
  // The RPC XID differs from the XID of the header.
  with_offered([](RawCall& r, const Offer&) { return accepted(r.xid + 1); });
}

/// Has the server answer by the Reply chunk, after writing `written` bytes of `message` to it.
const Finished& answer_by_reply_chunk(ClientLab& lab, std::uint32_t xid, const Bytes& message,
                                      std::size_t written) {
  const Offer offer = offer_in(lab.peer->inbox.back().bytes);
  if (written > 0) lab.peer->write_remote(offer.reply->at(0), std::span(message).first(written));
  RawCall reply{.xid = xid, .credits = 16, .proc = 1, .reply = offer.reply};
  set_lengths(*reply.reply, {static_cast<std::uint32_t>(message.size())});
  lab.peer->send(reply.header());
  lab.settle();
  return lab.finished.back();
}

TEST(RequesterReplies, V1_036_A_17_the_xid_in_a_reply_chunk_is_compared_too) {
  LabOptions options;
  options.requester.long_buffers = 1;  // every Reply chunk uses the same buffer
  ClientLab lab(options);
  const auto submit = [&lab] {
    const auto xid = lab.submit({.payload = null_call(), .max_reply_bytes = 4096, .offer_reply_chunk = true});
    lab.settle();
    return xid.value_or(0);
  };
  std::uint32_t xid = submit();
  const Finished good = answer_by_reply_chunk(lab, xid, accepted(xid, {1, 2}), 32);
  EXPECT_EQ(good.status, CallStatus::Ok);
  EXPECT_EQ(good.message, accepted(xid, {1, 2}));
  xid = submit();
  EXPECT_EQ(answer_by_reply_chunk(lab, xid, accepted(xid + 77, {1, 2}), 32).status,
            CallStatus::UnusableReply);
  xid = submit();
  EXPECT_EQ(answer_by_reply_chunk(lab, xid, accepted(xid, {1, 2}), 32).status, CallStatus::Ok);
  // A chunk that was not written holds no reply, in particular not the reply of the previous call.
  xid = submit();
  EXPECT_EQ(answer_by_reply_chunk(lab, xid, accepted(xid, {1, 2}), 0).status, CallStatus::UnusableReply);
  EXPECT_EQ(lab.engine->counters().unusable_reply, 2u);
  EXPECT_EQ(lab.peer->inbox.size(), 4u);
  xid = submit();
  EXPECT_EQ(answer_by_reply_chunk(lab, xid, accepted(xid), 24).status, CallStatus::Ok);
}

/// The call is retransmitted with the same buffer, where an earlier server left a reply with the right XID.
TEST(RequesterReplies, V1_036_A_17_a_reply_of_the_same_xid_from_before_a_reconnect_is_none) {
  LabOptions options;
  options.requester.long_buffers = 1;
  ClientLab lab(options);
  lab.submit({.payload = null_call(), .max_reply_bytes = 4096, .offer_reply_chunk = true});
  lab.settle();
  const std::uint32_t xid = xid_of(got(lab, 0));
  lab.peer->write_remote(offer_in(got(lab, 0)).reply->at(0), accepted(xid, {1, 2}));
  lab.settle();
  lab.disconnect();
  lab.connect();
  ASSERT_EQ(xid_of(got(lab, 0)), xid);
  EXPECT_EQ(answer_by_reply_chunk(lab, xid, accepted(xid, {1, 2}), 0).status, CallStatus::UnusableReply);
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

}  // namespace
}  // namespace sluice::conformance
