// SPDX-License-Identifier: Apache-2.0
//
// Replies of version 1 that cannot be right: the client ends the call with an error, and goes on.
#include "cli/conformance/provoking.h"

namespace sluice::conformance {
namespace {

/// Of nothing that the client has offered.
constexpr rpcrdma::Segment kForeign{static_cast<rdma::Rkey>(0xEE1), 512, 0x7E0000004000};

RawCall reply_to(Stage& s, const WaitingCall& call) {
  return {.xid = call.xid(),
          .credits = s.responder.grant(),
          .writes = call.message.header.writes,
          .reply = std::nullopt};
}

/// A READ, whose Write chunk comes back as `change` makes it.
void write_chunk_comes_back(Stage& s, void (*change)(Segments& chunk)) {
  const WaitingCall call = s.await(is_read_with_a_chunk, "a READ with a Write chunk");
  RawCall reply = reply_to(s, call);
  change(reply.writes.front());
  expect_borne(s, call, reply.with(empty_reply(call.xid())));
}

const Provocation kProvocations[] = {
    {{"V1_091_V1_036_a_reply_has_a_Read_list", Level::Must, Needs::Nothing,
      "RFC 8166, 4.3.1; RFC 5666, 3.5 had them: nothing is fetched, the call ends, and no RDMA_DONE is sent.",
      nullptr},
     [](Stage& s) {
       const WaitingCall call = s.await_harmless();
       RawCall reply = reply_to(s, call);
       reply.reads = {{24, kForeign}};
       expect_borne(s, call, reply.with(empty_reply(call.xid())));
     }},
    {{"V1_110_V1_036_a_Write_chunk_comes_back_longer_than_it_was", Level::Must, Needs::Nothing,
      "RFC 8166, 4.3.2: the lengths are what was written, no more than was offered.", nullptr},
     [](Stage& s) { write_chunk_comes_back(s, [](Segments& chunk) { ++chunk.front().length; }); }},
    {{"V1_110_a_Write_chunk_comes_back_with_another_segment", Level::Must, Needs::Nothing,
      "RFC 8166, 4.3.2: a chunk that was used has as many segments as it was offered with.", nullptr},
     [](Stage& s) { write_chunk_comes_back(s, [](Segments& chunk) { chunk.push_back(kForeign); }); }},
    {{"V1_110_a_Write_list_comes_that_was_never_offered", Level::Must, Needs::Nothing,
      "RFC 8166, 4.3.2: the list is that of the call.", nullptr},
     [](Stage& s) {
       const WaitingCall call = s.await_harmless();
       RawCall reply = reply_to(s, call);
       reply.writes.push_back({kForeign});
       expect_borne(s, call, reply.with(empty_reply(call.xid())));
     }},
    {{"V1_122_V1_036_an_RDMA_NOMSG_comes_without_a_Reply_chunk_in_the_call", Level::Should, Needs::Nothing,
      "RFC 8166, 4.3.3: there is no memory that the reply could be in, and the call is not sent again.",
      nullptr},
     [](Stage& s) {
       const WaitingCall call =
           s.await([](const WaitingCall& c) { return Stage::is_harmless(c) && !has_reply_chunk(c); },
                   "a GETATTR, LOOKUP or ACCESS of NFS version 3 without a Reply chunk");
       RawCall reply = reply_to(s, call);
       reply.proc = 1;
       reply.reply = {kForeign};
       expect_borne(s, call, reply.header());
     }},
    {{"V1_036_a_reply_ends_within_its_header", Level::Should, Needs::Nothing,
      "RFC 8166, 4.5: it cannot be read; the XID tells whose reply it is, and a call that can never complete "
      "is not sent again.",
      nullptr},
     [](Stage& s) {
       const WaitingCall call = s.await_harmless();
       expect_borne(s, call, std::span<const std::byte>(reply_to(s, call).header()).first(20));
     }},
    {{"V1_036_a_discriminator_of_a_reply_is_neither_0_nor_1", Level::Should, Needs::Nothing,
      "RFC 8166, 4.5: it cannot be read.", nullptr},
     [](Stage& s) {
       const WaitingCall call = s.await_harmless();
       Bytes message = reply_to(s, call).with(empty_reply(call.xid()));
       xdr::store_u32(message.data() + 16, 2);
       expect_borne(s, call, message);
     }},
    {{"V1_036_V1_005_a_reply_has_two_XIDs", Level::Should, Needs::Nothing,
      "RFC 8166, 4.2.1: rdma_xid is that of the RPC message.", nullptr},
     [](Stage& s) {
       const WaitingCall call = s.await_harmless();
       expect_borne(s, call, reply_to(s, call).with(empty_reply(~call.xid())));
     }},
};

}  // namespace

std::span<const Provocation> broken_replies() {
  return kProvocations;
}

}  // namespace sluice::conformance
