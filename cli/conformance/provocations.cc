// SPDX-License-Identifier: Apache-2.0
//
// What a client has to bear: what the documents let a responder do, and what older responders did.
#include "cli/conformance/provoking.h"
#include "dataplane/ulb/nfs3.h"

namespace sluice::conformance {
namespace {

constexpr std::uint32_t kCallsWithFewCredits = 20;

/// An RDMA_MSG without chunks.
void send(Stage& s, const WaitingCall& to, std::uint32_t xid, std::span<const std::byte> payload,
          std::uint32_t proc = 0) {
  if (!to.visit->ended)
    s.responder.send(*to.visit,
                     RawCall{.xid = xid, .credits = s.responder.grant(), .proc = proc}.with(payload));
}

void errors_end_the_call(Stage& s, std::uint32_t error) {
  const WaitingCall call = s.await_harmless();
  s.responder.refuse(call, error);
  s.expect_done(call);
}

const Provocation kProvocations[] = {
    {{"V1_121_a_reply_that_would_fit_comes_in_the_Reply_chunk", Level::Must, Needs::Nothing,
      "RFC 8166, 4.3.3: where a Reply chunk is offered, the responder may use it whatever the size.",
      nullptr},
     [](Stage& s) {
       const WaitingCall call = s.await(has_reply_chunk, "a call with a Reply chunk");
       s.responder.serve(call, {.always_reply_chunk = true});
       s.expect_done(call);
     }},
    {{"V1_100_V1_108_a_part_of_a_Write_chunk_is_used", Level::Must, Needs::Nothing,
      "RFC 8166, 4.3.2: the lengths that come back are what was written; RFC 1813, 3.3.6: a READ may return "
      "less.",
      nullptr},
     use_a_part_of_a_write_chunk},
    {{"V1_104_V1_105_padding_is_written_behind_a_result", Level::Decision, Needs::Nothing,
      "RFC 5666, 3.7: responders of old round the length up; the count in the reply is what counts.",
      nullptr},
     [](Stage& s) {
       const AnsweredRead read =
           await_read(s, "a READ that returns a number of octets that is no multiple of four",
                      [](std::uint32_t count) { return count % 4 != 0; });
       if (bytes_in(read.call.message.header.writes.front()) < padded(read.count()))
         s.skip("Not seen: a Write chunk with room for padding.");
       s.responder.answer(read.call, read.reply, {.padded_results = true});
       s.expect_done(read.call);
     }},
    {{"V1_043_V1_048_the_grant_falls_to_one", Level::Must, Needs::Nothing,
      "RFC 8166, 3.3.1: the grant may change with each reply; the latest one holds.", nullptr},
     [](Stage& s) {
       const WaitingCall first =
           s.await([](const WaitingCall& c) { return c.visit->talk.unanswered.size() > 1; },
                   "two calls that are open at once");
       s.responder.set_grant(1);
       s.responder.serve(first);
       const std::uint32_t before = first.visit->talk.too_many;
       s.serve(kCallsWithFewCredits);
       s.expect(first.visit->talk.too_many == before, "one call at a time");
     }},
    {{"V1_055_a_grant_of_zero_stops_nobody", Level::Decision, Needs::Nothing,
      "RFC 5666, 3.3 let responders grant zero; with nothing open, a requester may send one call.", nullptr},
     [](Stage& s) {
       const WaitingCall call = s.await_call();
       s.responder.serve(call, {.grant = 0});
       try {
         s.expect_done(call);
       } catch (const Failure&) {
         s.responder.hang_up(*call.visit);  // or nothing comes of it any more
         throw;
       }
     }},
    {{"V1_155_a_reply_with_an_unknown_XID_changes_nothing", Level::Must, Needs::Nothing,
      "RFC 8166, 4.2.1: a reply is matched by its XID; one that matches none is dropped, or the connection "
      "ends.",
      nullptr},
     [](Stage& s) {
       const WaitingCall call = s.await_call();
       const std::uint32_t unknown = ~call.xid();
       send(s, call, unknown, empty_reply(unknown));
       s.responder.serve(call);
       if (!call.visit->ended) s.expect_done(call);
     }},
    {{"V1_155_a_second_reply_changes_nothing", Level::Must, Needs::Nothing,
      "RFC 8166, 4.2.1: the XID is done with when the reply has been processed.", nullptr},
     [](Stage& s) {
       const WaitingCall call = s.await_harmless();
       const Bytes reply = result(s, call);
       s.responder.answer(call, reply);
       send(s, call, call.xid(), reply);
       if (!call.visit->ended) s.expect_done(call);
     }},
    {{"V1_133_V1_135_RDMA_DONE_and_RDMA_MSGP_are_dropped", Level::Should, Needs::Nothing,
      "RFC 8166, 4.6: neither is of any use to a requester.", nullptr},
     [](Stage& s) {
       const WaitingCall call = s.await_harmless();
       if (!call.visit->ended) s.responder.send(*call.visit, words({~call.xid(), 1, s.responder.grant(), 3}));
       Bytes aligned = words({64, 64, 0, 0, 0});
       append(aligned, empty_reply(~call.xid()));
       Bytes message = words({~call.xid(), 1, s.responder.grant(), 2});
       append(message, aligned);
       if (!call.visit->ended) s.responder.send(*call.visit, message);
       s.responder.serve(call);
       s.expect_done(call);
     }},
    {{"V1_157_V1_158_V1_171_a_reverse_call_is_no_reply", Level::Should, Needs::Nothing,
      "RFC 8167, 5.5 and 6: msg_type tells the direction, not the XID; who is not prepared for such calls "
      "may "
      "lose the connection, and does better to drop them or to answer with an error.",
      nullptr},
     [](Stage& s) {
       const WaitingCall call = s.await_harmless();
       send(s, call, call.xid(), rpc_call(call.xid(), kCallBack, 1, 0));
       s.responder.serve(call);
       const std::uint32_t errors = call.visit->talk.errors;
       call.visit->talk.errors = 0;
       s.expect(errors <= 1, "at most one RDMA_ERROR");
       s.expect_done(call);
     }},
    {{"V1_174_an_error_with_an_unknown_XID_changes_nothing", Level::Must, Needs::Nothing,
      "RFC 8166, 4.5: an RDMA_ERROR ends the call of its XID alone, and is not answered.", nullptr},
     [](Stage& s) {
       const WaitingCall call = s.await_call();
       if (!call.visit->ended)
         s.responder.send(*call.visit, words({~call.xid(), 1, s.responder.grant(), 4, 2}));
       s.responder.serve(call);
       if (!call.visit->ended) s.expect_done(call);
     }},
    {{"V1_150_a_reply_invalidates_a_handle", Level::Must, Needs::Nothing,
      "RFC 8797, 4: the responder may invalidate one of the call's handles, where the requester has said "
      "that it can bear it.",
      nullptr},
     [](Stage& s) {
       const WaitingCall call = s.await(has_chunks, "a call with chunks");
       const auto& data = call.visit->talk.client_data;
       if (!data || !data->remote_invalidation) {
         s.responder.serve(call);
         s.skip("The client does not offer remote invalidation.");
       }
       s.responder.serve(call, {.invalidate = first_segment(call.message.header).handle});
       s.expect_done(call);
     }},
    {{"V1_152_V1_059_a_call_is_repeated_when_its_connection_ends", Level::Must, Needs::Nothing,
      "RFC 8166, 4.5.4 and RFC 8881, 2.9.2: the client connects again, and sends the call with the same XID.",
      nullptr},
     [](Stage& s) {
       const WaitingCall call = s.await(has_chunks, "a call with chunks");
       s.responder.hang_up(*call.visit);
       s.expect_again(call);
     }},
    {{"V1_062_without_private_data_1024_octets_are_the_limit", Level::Must, Needs::Nothing,
      "RFC 8166, 3.3.2: without a way to learn more, each message has at most 1024 octets.", nullptr},
     [](Stage& s) {
       s.responder.set_receive_bytes(0);
       const WaitingCall call = s.await_call();
       s.responder.hang_up(*call.visit);
       s.expect_again(call);
       for (std::uint32_t i = 0; i < kCallsWithFewCredits; ++i) {
         const WaitingCall next = s.await_call();
         s.responder.serve(next);
         s.expect(next.message.bytes.size() <= next.visit->talk.receive_bytes,
                  "no message of more than 1024 octets");
       }
     }},
    {{"V1_147_memory_that_is_to_be_read_cannot_be_written", Level::Must, Needs::Nothing,
      "RFC 8166, 8.1: the memory of a Read chunk is registered for remote reading alone.", nullptr},
     write_to_a_read_chunk},
    {{"V1_139_V1_140_memory_of_an_answered_call_cannot_be_read", Level::Must, Needs::Nothing,
      "RFC 8166, 3.4 and 8.1.3: access ends before the upper layer goes on with the memory.", nullptr},
     read_memory_of_an_answered_call},
    {{"V1_027_V1_028_ERR_CHUNK_ends_the_call", Level::Should, Needs::Nothing,
      "RFC 8166, 4.5: an RDMA_ERROR is permanent; the call is not sent again, and the error is not answered.",
      nullptr},
     [](Stage& s) { errors_end_the_call(s, 2); }},
    {{"V1_029_ERR_VERS_ends_the_call", Level::Should, Needs::Nothing,
      "RFC 8166, 4.5.1: a responder that speaks none of the client's versions is not asked again and again.",
      nullptr},
     [](Stage& s) { errors_end_the_call(s, 1); }},
};

}  // namespace

std::span<const Provocation> provocations() {
  return kProvocations;
}
}  // namespace sluice::conformance
