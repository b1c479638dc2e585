// SPDX-License-Identifier: Apache-2.0
//
// Replies of version 2 that cannot be right: the client ends the call with an error, sends none, and goes on.
#include "cli/conformance/provoking.h"

namespace sluice::conformance {
namespace {

using v2::Header;

/// Of nothing that the client has offered.
constexpr rpcrdma::Segment kForeign{static_cast<rdma::Rkey>(0xEE1), 512, 0x7E0000004000};

constexpr std::size_t kPartOfALongReply = 4060;
constexpr std::uint32_t kPartsOfALongReply = 600;

Header reply_to(const WaitingCall& call) {
  return {.xid = call.xid(), .flags = v2::kResponse, .writes = call.message.header.writes};
}

void write_chunk_comes_back(Stage& s, void (*change)(Segments& chunk)) {
  const WaitingCall call = s.await(is_read_with_a_chunk, "a READ with a Write chunk");
  Header reply = reply_to(call);
  change(reply.writes.front());
  expect_borne(s, call, reply.with(empty_reply(call.xid())));
}

const Provocation kProvocations[] = {
    {{"V2_079_a_Reply_has_a_Read_list", Level::Must, Needs::Nothing,
      "RFC 8166, 4.3.1 (D2-32): it is empty in Replies; nothing is fetched.", nullptr},
     [](Stage& s) {
       const WaitingCall call = s.await_harmless();
       Header reply = reply_to(call);
       reply.reads = {{24, kForeign}};
       expect_borne(s, call, reply.with(empty_reply(call.xid())));
     }},
    {{"V2_146_a_Write_chunk_comes_back_longer_than_it_was", Level::Decision, Needs::Nothing,
      "Version 2, 4.4.6: the lengths are what was written, no more than was offered.", nullptr},
     [](Stage& s) { write_chunk_comes_back(s, [](Segments& chunk) { ++chunk.front().length; }); }},
    {{"V2_146_a_Write_chunk_comes_back_with_another_segment", Level::Decision, Needs::Nothing,
      "Version 2, 4.4.6: all segments come back, and no others.", nullptr},
     [](Stage& s) { write_chunk_comes_back(s, [](Segments& chunk) { chunk.push_back(kForeign); }); }},
    {{"V2_146_V2_068_a_NOMSG_comes_without_a_Reply_chunk_in_the_call", Level::Decision, Needs::Nothing,
      "Version 2, 6.4.2: there is no memory that the Reply could be in.", nullptr},
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
      "D2-41: it ends its RPC, and the rest of it is dropped.", nullptr},
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
      "Version 2, A.1: where a Write chunk was there, the RPC ends with a permanent error.", nullptr},
     [](Stage& s) {
       const AnsweredRead read = await_read(s, "a READ of a few octets, with a Write chunk",
                                            [](std::uint32_t count) { return count > 0; });
       Bytes reply = read.reply;
       // Four octets of it.
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
  return kProvocations;
}

}  // namespace sluice::conformance
