// SPDX-License-Identifier: Apache-2.0
//
// Behaviour that a client of version 2 must tolerate: replies in parts and in chunks, few credits,
// properties, and messages that it must refuse.
#include "cli/conformance/provoking.h"

namespace sluice::conformance {
namespace {

using v2::Header;

constexpr std::uint32_t kFourOctetsInAPart = 40;
constexpr std::uint32_t kManyCredits = 64;

/// Sends a message of the responder that is not a reply to a call.
void tell(Stage& s, Visit& visit, std::span<const std::byte> message) {
  if (!visit.ended) s.responder.send(visit, message);
}

const Provocation kV2Provocations[] = {
    {{"V2_084_V2_091_V2_098_a_reply_comes_four_octets_at_a_time", Level::Must, Needs::Nothing,
      "Version 2, 4.5.2 and 6.3.2.2: a message may be split anywhere, and its receiver grants credits before "
      "the last part.",
      nullptr},
     [](Stage& s) {
       const WaitingCall call = s.await_call();
       s.responder.serve(call, {.part_bytes = kFourOctetsInAPart});
       s.expect_done(call);
     }},
    {{"V2_089_V2_096_a_reply_in_parts_has_its_chunks_in_the_last", Level::Must, Needs::Nothing,
      "Version 2, 4.5.3: reduction and continuation can be combined.", nullptr},
     [](Stage& s) {
       const AnsweredRead read = await_read(s, "a READ that returns something, with a Write chunk",
                                            [](std::uint32_t count) { return count > 0; });
       s.responder.answer(read.call, read.reply, {.part_bytes = kFourOctetsInAPart});
       s.expect_done(read.call);
     }},
    {{"V2_097_V2_068_a_reply_that_would_fit_comes_in_the_Reply_chunk", Level::Must, Needs::Nothing,
      "Version 2, 4.5.4 and 6.4.2: the reply is a NOMSG with RESPONSE, whose Reply chunk has its length.",
      nullptr},
     [](Stage& s) {
       const WaitingCall call = s.await(has_reply_chunk, "a call with a Reply chunk");
       s.responder.serve(call, {.always_reply_chunk = true});
       s.expect_done(call);
     }},
    {{"V2_100_V2_099_a_reply_comes_in_parts_although_there_is_a_Reply_chunk", Level::Must, Needs::Nothing,
      "Version 2, 6.3.3.1 and 6.5: continuation may be used although a Reply chunk is offered.", nullptr},
     [](Stage& s) {
       const WaitingCall call = s.await(has_reply_chunk, "a call with a Reply chunk");
       s.responder.serve(call, {.part_bytes = kFourOctetsInAPart, .in_parts = true});
       s.expect_done(call);
     }},
    {{"V2_101_a_Reply_chunk_that_is_not_used_comes_back_empty", Level::Decision, Needs::Nothing,
      "D2-33: in an inline Reply the chunk may be absent, or present with lengths of zero.", nullptr},
     [](Stage& s) {
       const WaitingCall call = s.await(has_reply_chunk, "a call with a Reply chunk");
       s.responder.serve(call, {.in_parts = true, .echoed_reply_chunk = true});
       s.expect_done(call);
     }},
    {{"V2_078_V2_079_a_part_of_a_Write_chunk_is_used", Level::Must, Needs::Nothing,
      "Version 2, 4.4.6: the returned lengths are those that were written; RFC 1813, 3.3.6: a READ may "
      "return less than was requested.",
      nullptr},
     use_a_part_of_a_write_chunk},
    {{"V2_036_V2_037_V2_090_the_window_falls_to_two_and_grows", Level::Must, Needs::Nothing,
      "Version 2, 4.3.1.1: the limit may change at any time; a sender without credits waits, even within a "
      "message.",
      nullptr},
     [](Stage& s) {
       const WaitingCall first = s.await_call();
       const auto visit = first.visit;
       s.responder.serve(first);
       const std::uint32_t before = visit->talk.v2.overdrafts();
       for (const std::uint32_t window : {2u, kManyCredits}) {
         s.responder.set_grant(window);
         s.serve(kCallsWithFewCredits);
       }
       s.expect(!visit->ended, "the connection to stay");
       s.expect(visit->talk.v2.overdrafts() == before, "no message without a credit");
     }},
    {{"V2_034_V2_033_the_limit_gives_no_credits", Level::Must, Needs::Nothing,
      "Version 2, 4.3.1.1: only the low half of the credit word is added to the balance.", nullptr},
     [](Stage& s) {
       const WaitingCall call = s.await_call();
       const auto visit = call.visit;
       const std::uint32_t before = visit->talk.v2.overdrafts();
       for (const std::uint32_t word : {0xFFFF0000u, 0x00010000u})
         s.responder.send_as_it_is(*visit, Header{.xid = 0, .credit = word, .type = v2::kNoMsg}.bytes());
       s.responder.serve(call);
       s.expect_done(call);
       s.expect(visit->talk.v2.overdrafts() == before, "no message without a credit");
     }},
    {{"V2_041_V2_040_a_grant_with_an_XID_is_no_reply", Level::Must, Needs::Nothing,
      "Version 2, 6.4.2: a NOMSG with empty lists is a grant; its XID and rdma_inv_handle are ignored, and "
      "it is not answered.",
      nullptr},
     [](Stage& s) {
       const WaitingCall call = s.await_call();
       for (int i = 0; i < 3; ++i)
         tell(s, *call.visit, Header{.xid = call.xid(), .type = v2::kNoMsg, .invalidate = 5}.bytes());
       s.responder.serve(call);
       s.expect_done(call);
     }},
    {{"V2_039_a_grant_comes_beyond_all_credits_of_the_client", Level::Must, Needs::Nothing,
      "Version 2, 4.3.1.2: one Receive more than was granted is always posted, for a grant.", nullptr},
     [](Stage& s) {
       const WaitingCall call = s.await_call();
       Visit& visit = *call.visit;
       const std::uint32_t xid = next_xid();
       for (std::int64_t left = visit.talk.v2.balance(); left > 0; --left)
         tell(s, visit, Header{.xid = xid, .flags = v2::kResponse}.with(empty_reply(xid)));
       tell(s, visit, Header{.xid = 0, .type = v2::kNoMsg}.bytes());
       s.responder.serve(call);
       s.expect_done(call);
     }},
    {{"V2_004_V2_005_fragments_and_other_versions_are_not_processed", Level::Must, Needs::Nothing,
      "Version 2, C.1: the version is checked first, and ERR_VERS may report another one; D2-05: a message "
      "shorter than its prefix is dropped.",
      nullptr},
     [](Stage& s) {
       const WaitingCall call = s.await_call();
       const auto visit = call.visit;
       for (const Bytes& message : {words({next_xid(), 2}), words({next_xid(), 2, 0, 0}),
                                    words({next_xid(), 9, 0, 0, 0xFFFFFFFF, 0xFFFFFFFF})})
         if (!visit->ended) s.responder.send_as_it_is(*visit, message);
       s.responder.serve(call);
       s.serve(5);
       s.expect(visit->talk.errors <= 1, "at most one ERR_VERS");
       visit->talk.errors = 0;
       s.expect_done(call);
     }},
    {{"V2_062_V2_063_authentication_of_the_responder_may_be_long", Level::Should, Needs::Nothing,
      "Version 2, 5.2.6 and C.5: authentication may take several messages; a client that does not support it "
      "continues.",
      nullptr},
     [](Stage& s) {
       const WaitingCall call = s.await_call();
       const std::uint32_t xid = next_xid();
       const Bytes half(3000);
       const Header first{.xid = xid, .type = v2::kConnProp, .flags = v2::kMore};
       Bytes message = first.then({1, kHostAuthentication, 6004, 6000});
       append(message, half);
       tell(s, *call.visit, message);
       message = Header{.xid = xid, .type = v2::kConnProp}.prefix();
       append(message, half);
       tell(s, *call.visit, message);
       s.responder.serve(call);
       s.expect_done(call);
     }},
    {{"V2_059_V2_060_later_properties_change_nothing", Level::Must, Needs::Nothing,
      "Version 2, 6.4.4: a property that was not in the first set keeps its default, and no answer is sent.",
      nullptr},
     [](Stage& s) {
       const WaitingCall call = s.await_call();
       const auto visit = call.visit;
       tell(s, *visit, properties(next_xid(), {{kReceiveSize, 65536}, {kSegmentSize, 1u << 30}}));
       tell(s, *visit, properties(next_xid(), {{0, 1}, {0xFFFFFFFF, 2}}));
       s.responder.serve(call);
       s.expect_done(call);
       s.expect(visit->talk.v2.longest() <= visit->talk.receive_bytes, "messages as short as before");
     }},
    {{"V2_028_V2_107_what_is_wrong_with_RESPONSE_is_dropped", Level::Must, Needs::Nothing,
      "Version 2, 6.4.3: a requester sends no ERROR about a Reply; D2-07: the Reply is dropped, whatever its "
      "error.",
      nullptr},
     [](Stage& s) {
       const WaitingCall call = s.await_call();
       Visit& visit = *call.visit;
       const std::uint32_t xid = next_xid();
       tell(s, visit, Header{.xid = xid, .flags = v2::kResponse}.with(empty_reply(xid)));
       tell(s, visit, Header{.xid = xid, .flags = v2::kResponse}.with(rpc_call(xid, kCallBack, 1, 0)));
       tell(s, visit, Header{.xid = xid, .type = 9, .flags = v2::kResponse}.bytes());
       tell(s, visit, Header{.xid = xid, .flags = v2::kResponse | 8}.with(empty_reply(xid)));
       tell(s, visit, Header{.xid = xid, .flags = v2::kResponse}.then({0, 2, 0, 0}));
       s.responder.serve(call);
       s.expect_done(call);
     }},
    {{"V2_108_V2_044_an_ERROR_with_an_unknown_XID_changes_nothing", Level::Must, Needs::Nothing,
      "Version 2, 6.4.3; RFC 8166, 4.2.4: the ERROR is not answered, and its credit word is ignored.",
      nullptr},
     [](Stage& s) {
       const WaitingCall call = s.await_call();
       const auto visit = call.visit;
       const std::uint32_t before = visit->talk.v2.overdrafts();
       const Header error{
           .xid = next_xid(), .credit = 0x004003E8, .type = v2::kError, .flags = v2::kResponse};
       for (const Bytes& body : {words({2}), words({77}), words({8, 1}), Bytes{}}) {
         Bytes message = error.prefix();
         append(message, body);
         if (!visit->ended) s.responder.send_as_it_is(*visit, message);
       }
       s.responder.serve(call);
       s.expect_done(call);
       s.expect(visit->talk.v2.overdrafts() == before, "no message without a credit");
     }},
    {{"V2_026_V2_133_a_reverse_call_is_no_reply", Level::Must, Needs::Nothing,
      "Version 2, 6.3.2.1: RESPONSE indicates the direction, not the XID; an end that does not serve such "
      "calls sends an ERROR.",
      nullptr},
     [](Stage& s) {
       const WaitingCall call = s.await_harmless();
       tell(s, *call.visit, Header{.xid = call.xid()}.with(rpc_call(call.xid(), kCallBack, 1, 0)));
       s.responder.serve(call);
       s.serve(5);
       s.expect(call.visit->talk.errors <= 1, "at most one ERROR");
       call.visit->talk.errors = 0;
       s.expect_done(call);
     }},
    {{"V2_127_V2_128_a_reply_invalidates_the_handle_that_was_named", Level::Must, Needs::Nothing,
      "Version 2, 6.3.3.2: the last Send of the Reply invalidates the rdma_inv_handle of its Call.", nullptr},
     [](Stage& s) {
       const WaitingCall call = s.await([](const WaitingCall& c) { return c.message.invalidate != 0; },
                                        "a call that names a handle to invalidate");
       s.responder.serve(call, {.invalidate = static_cast<rdma::Rkey>(call.message.invalidate),
                                .part_bytes = kFourOctetsInAPart});
       s.expect_done(call);
     }},
    {{"V2_141_memory_that_is_to_be_read_cannot_be_written", Level::Must, Needs::Nothing,
      "Version 2, 10.1: the memory of a Read chunk is registered for remote reading alone.", nullptr},
     write_to_a_read_chunk},
    {{"V2_144_V2_130_memory_of_an_answered_call_cannot_be_read", Level::Must, Needs::Nothing,
      "Version 2, 10.1.3: access ends before the upper layer uses the memory again.", nullptr},
     read_memory_of_an_answered_call},
    {{"V2_129_the_handle_of_another_call_is_invalidated", Level::Decision, Needs::Nothing,
      "D2-51: memory of another call may have become inaccessible, so the connection is closed, and the "
      "calls are retransmitted.",
      nullptr},
     [](Stage& s) {
       const WaitingCall first = s.await(has_chunks, "a call with chunks");
       const WaitingCall second =
           s.await([&](const WaitingCall& c) { return c.visit == first.visit && has_chunks(c); },
                   "another one, while the first is open");
       s.responder.serve(first, {.invalidate = first_segment(second.message.header).handle});
       s.responder.wait(s.patience_ns(), [&] { return first.visit->ended; });
       s.expect(first.visit->ended, "the connection to end");
       s.expect_again(second);
     }},
    {{"V2_095_V2_142_a_call_is_repeated_when_its_connection_ends_within_the_reply", Level::Must,
      Needs::Nothing,
      "RFC 8166, 4.5.4 and RFC 8881, 2.9.2: the client reconnects, and retransmits the call with the same "
      "XID; the received parts are discarded.",
      nullptr},
     [](Stage& s) {
       const WaitingCall call = s.await(has_chunks, "a call with chunks");
       const Header part{.xid = call.xid(), .flags = v2::kResponse | v2::kMore};
       tell(s, *call.visit, part.with(empty_reply(call.xid())));
       s.responder.settle(*call.visit);
       s.responder.hang_up(*call.visit);
       s.expect_again(call);
     }},
};

}  // namespace

std::span<const Provocation> provocations_of_version_2() {
  return kV2Provocations;
}

// --- Invalid replies: the client ends the call with an error, sends no ERROR, and continues

namespace {

constexpr std::size_t kPartOfALongReply = 4060;
constexpr std::uint32_t kPartsOfALongReply = 600;

Header reply_to(const WaitingCall& call) {
  return {.xid = call.xid(), .flags = v2::kResponse, .writes = call.message.header.writes};
}

void write_chunk_comes_back_v2(Stage& s, void (*change)(Segments& chunk)) {
  const WaitingCall call = s.await(is_read_with_a_chunk, "a READ with a Write chunk");
  Header reply = reply_to(call);
  change(reply.writes.front());
  expect_borne(s, call, reply.with(empty_reply(call.xid())));
}

const Provocation kBrokenV2Replies[] = {
    {{"V2_079_a_Reply_has_a_Read_list", Level::Must, Needs::Nothing,
      "RFC 8166, 4.3.1 (D2-32): the Read list is empty in Replies; no data is fetched.", nullptr},
     [](Stage& s) {
       const WaitingCall call = s.await_harmless();
       Header reply = reply_to(call);
       reply.reads = {{24, kForeign}};
       expect_borne(s, call, reply.with(empty_reply(call.xid())));
     }},
    {{"V2_146_a_Write_chunk_comes_back_longer_than_it_was", Level::Decision, Needs::Nothing,
      "Version 2, 4.4.6: the lengths are those that were written, and do not exceed those that were offered.",
      nullptr},
     [](Stage& s) { write_chunk_comes_back_v2(s, [](Segments& chunk) { ++chunk.front().length; }); }},
    {{"V2_146_a_Write_chunk_comes_back_with_another_segment", Level::Decision, Needs::Nothing,
      "Version 2, 4.4.6: all offered segments are returned, and no others.", nullptr},
     [](Stage& s) { write_chunk_comes_back_v2(s, [](Segments& chunk) { chunk.push_back(kForeign); }); }},
    {{"V2_146_V2_068_a_NOMSG_comes_without_a_Reply_chunk_in_the_call", Level::Decision, Needs::Nothing,
      "Version 2, 6.4.2: no memory was offered that could hold the Reply.", nullptr},
     [](Stage& s) {
       const WaitingCall call =
           s.await([](const WaitingCall& c) { return Stage::is_harmless(c) && !has_reply_chunk(c); },
                   "a GETATTR, LOOKUP or ACCESS of NFS version 3 without a Reply chunk");
       Header reply = reply_to(call);
       reply.type = v2::kNoMsg;
       reply.reply = {kForeign};
       expect_borne(s, call, reply.bytes());
     }},
    {{"V2_027_a_Call_comes_with_RESPONSE", Level::Decision, Needs::Nothing,
      "D2-11: RESPONSE and msg_type disagree, which ends the RPC of that XID.", nullptr},
     [](Stage& s) {
       const WaitingCall call = s.await_harmless();
       expect_borne(s, call, reply_to(call).with(rpc_call(call.xid(), kCallBack, 1, 0)));
     }},
    {{"V2_107_V2_110_a_Reply_cannot_be_read", Level::Must, Needs::Nothing,
      "Version 2, 6.4.3: no ERROR is sent about a Reply; the RPC of its XID ends.", nullptr},
     [](Stage& s) {
       WaitingCall call = s.await_harmless();
       expect_borne(s, call, reply_to(call).then({0, 0}));
       call = s.await_harmless();
       expect_borne(s, call, reply_to(call).then({0, 2, 0, 0}));
     }},
    {{"V2_094_V2_086_the_parts_of_a_Reply_have_two_XIDs", Level::Decision, Needs::Nothing,
      "D2-07: a broken sequence is not answered; the RPC ends.", nullptr},
     [](Stage& s) {
       const WaitingCall call = s.await_harmless();
       const Bytes payload = empty_reply(call.xid());
       Header part = reply_to(call);
       part.flags |= v2::kMore;
       if (!call.visit->ended) s.responder.send(*call.visit, part.with(std::span(payload).first(12)));
       part = {.xid = ~call.xid(), .flags = v2::kResponse};
       expect_borne(s, call, part.with(std::span(payload).subspan(12)));
     }},
    {{"V2_092_a_Reply_is_longer_than_any", Level::Decision, Needs::Nothing,
      "D2-41: the RPC ends, and the rest of the Reply is dropped.", nullptr},
     [](Stage& s) {
       const WaitingCall call = s.await_harmless();
       const Bytes payload(kPartOfALongReply);
       Header part = reply_to(call);
       part.writes.clear();
       part.flags |= v2::kMore;
       s.responder.send(*call.visit, part.with(empty_reply(call.xid())));
       for (std::uint32_t i = 0; i < kPartsOfALongReply; ++i)
         s.responder.send(*call.visit, part.with(payload));
       part.flags = v2::kResponse;
       expect_borne(s, call, part.with(payload));
     }},
    {{"V2_156_V2_096_an_eligible_result_stays_inline", Level::Must, Needs::Nothing,
      "Version 2, A.1: if a Write chunk was offered, the RPC ends with a permanent error.", nullptr},
     [](Stage& s) {
       const AnsweredRead read = await_read(s, "a READ of a few octets, with a Write chunk",
                                            [](std::uint32_t count) { return count > 0; });
       Bytes reply = read.reply;
       // Shortens the data to four octets.
       for (const std::size_t at : {kReadCountWord, kReadCountWord + 2})
         xdr::store_u32(reply.data() + at * 4, 4);
       reply.resize((kReadCountWord + 3) * 4 + 4);
       Header header = reply_to(read.call);
       for (rpcrdma::Segment& segment : header.writes.front()) segment.length = 0;
       expect_borne(s, read.call, header.with(reply));
     }},
};

}  // namespace

std::span<const Provocation> broken_replies_of_version_2() {
  return kBrokenV2Replies;
}

}  // namespace sluice::conformance
