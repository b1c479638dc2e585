// SPDX-License-Identifier: Apache-2.0
//
// Errors of version 2: errors that a client must handle, and errors that it must send.
#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "cli/conformance/provoking.h"

#include "dataplane/ulb/nfs3.h"

namespace sluice::conformance {
// --- Errors that request another form of the call, and errors that end the call

namespace {

constexpr std::uint32_t kReadChunks = 5;
constexpr std::uint32_t kWriteChunks = 6;
constexpr std::uint32_t kErrSegments = 7;
constexpr std::uint32_t kWriteResource = 8;
constexpr std::uint32_t kReplyResource = 9;
constexpr std::uint32_t kSystem = 10;
constexpr std::uint32_t kUnknown = 77;
constexpr std::uint32_t kCallsWithoutThatType = 30;

using Better = FunctionRef<bool(const WaitingCall& again)>;

/// Checks that the client retransmits the call in a form that the error requests. If `may_end` is true, the
/// call may end instead. The unchanged form is never correct.
void expect_replanned(Stage& s, const WaitingCall& call, Better better, const std::string& wanted,
                      bool may_end) {
  const auto again = s.expect_done_or_again(call);
  if (!again && !may_end) throw Failure("Expected: the call with its XID again, " + wanted);
  if (!again) return;
  s.expect(better(*again), wanted);
  s.responder.serve(*again);
  s.expect_done(*again);
}

void error_ends_the_call(Stage& s, std::uint32_t code, std::initializer_list<std::uint32_t> more = {}) {
  const WaitingCall call = s.await_harmless();
  s.responder.refuse(call, code, more);
  s.expect_done(call);
}

std::size_t segments_of(const RawCall& header) {
  std::size_t segments = header.reads.size() + (header.reply ? header.reply->size() : 0);
  for (const auto& chunk : header.writes) segments += chunk.size();
  return segments;
}

const Provocation kErrors[] = {
    {{"V2_105_V2_119_REPLY_RESOURCE_asks_for_a_larger_Reply_chunk", Level::Should, Needs::Nothing,
      "Version 2, 6.4.3 and 6.5: the call is repeated with it, or ends.", nullptr},
     [](Stage& s) {
       const WaitingCall call = s.await(has_reply_chunk, "a call with a Reply chunk");
       const auto needed = static_cast<std::uint32_t>(bytes_in(*call.message.header.reply)) + 4096;
       s.responder.refuse(call, kReplyResource, {needed});
       expect_replanned(
           s, call,
           [&](const WaitingCall& c) {
             return has_reply_chunk(c) && bytes_in(*c.message.header.reply) >= needed;
           },
           "with a Reply chunk of " + std::to_string(needed) + " octets", true);
     }},
    {{"V2_105_V2_118_WRITE_RESOURCE_asks_for_a_larger_Write_chunk", Level::Should, Needs::Nothing,
      "Version 2, 6.4.3 and 6.5: the call is repeated with it, or ends.", nullptr},
     [](Stage& s) {
       const WaitingCall call = s.await(is_read_with_a_chunk, "a READ with a Write chunk");
       const auto needed = static_cast<std::uint32_t>(bytes_in(call.message.header.writes.front())) + 4096;
       s.responder.refuse(call, kWriteResource, {1, needed});
       expect_replanned(
           s, call,
           [&](const WaitingCall& c) {
             return is_read_with_a_chunk(c) && bytes_in(c.message.header.writes.front()) >= needed;
           },
           "with a Write chunk of " + std::to_string(needed) + " octets", true);
     }},
    {{"V2_114_V2_113_READ_CHUNKS_of_zero_asks_for_a_chunk_of_position_zero", Level::Should, Needs::Nothing,
      "Version 2, 6.4.3: the call is sent again without other Read chunks.", nullptr},
     [](Stage& s) {
       const WaitingCall call = s.await(
           [](const WaitingCall& c) { return has_read_chunk(c) && c.message.header.proc == v2::kMsg; },
           "a call with a Read chunk");
       s.responder.refuse(call, kReadChunks, {0});
       expect_replanned(
           s, call,
           [](const WaitingCall& c) { return !has_read_chunk(c) || c.message.header.proc == v2::kNoMsg; },
           "as a NOMSG, or without chunks", false);
     }},
    {{"V2_116_V2_115_WRITE_CHUNKS_asks_for_the_Reply_chunk_alone", Level::Should, Needs::Nothing,
      "Version 2, 6.4.3: the call is sent again without Write chunks, and with a Reply chunk.", nullptr},
     [](Stage& s) {
       const WaitingCall call = s.await(is_read_with_a_chunk, "a READ with a Write chunk");
       s.responder.refuse(call, kWriteChunks, {0});
       expect_replanned(
           s, call,
           [](const WaitingCall& c) { return c.message.header.writes.empty() && has_reply_chunk(c); },
           "without Write chunks and with a Reply chunk", false);
     }},
    {{"V2_122_V2_117_SEGMENTS_asks_for_fewer", Level::Decision, Needs::Nothing,
      "Version 2, 6.4.3: the call is not sent again with as many segments as before.", nullptr},
     [](Stage& s) {
       const WaitingCall call = s.await(has_chunks, "a call with chunks");
       const auto segments = static_cast<std::uint32_t>(segments_of(call.message.header));
       s.responder.refuse(call, kErrSegments, {segments - 1});
       expect_replanned(
           s, call, [&](const WaitingCall& c) { return segments_of(c.message.header) < segments; },
           "with fewer segments", true);
     }},
    {{"V2_122_BAD_XDR_INVAL_HTYPE_and_INVAL_FLAG_end_the_call", Level::Decision, Needs::Nothing,
      "Version 2, 6.4.3: the same message would be refused again.", nullptr},
     [](Stage& s) {
       for (const std::uint32_t code : {2u, 3u, 4u}) error_ends_the_call(s, code);
     }},
    {{"V2_158_V2_111_a_type_that_was_refused_is_not_sent_again", Level::Decision, Needs::Nothing,
      "Version 2, B.1: INVAL_HTYPE says that the responder does not support the header type.", nullptr},
     [](Stage& s) {
       const auto is_long = [](const WaitingCall& c) { return c.message.header.proc == v2::kNoMsg; };
       const WaitingCall call = s.await(is_long, "a NOMSG");
       s.responder.refuse(call, 3);
       s.expect_done(call);
       for (std::uint32_t i = 0; i < kCallsWithoutThatType; ++i) {
         const WaitingCall next = s.await([](const WaitingCall&) { return true; }, "further calls");
         s.responder.serve(next);
         // Some calls may have been sent before the ERROR.
         s.expect(i < kCallsWithoutThatType / 2 || !is_long(next) || next.visit != call.visit,
                  "no NOMSG on this connection");
       }
     }},
    {{"V2_120_SYSTEM_ends_the_call", Level::Must, Needs::Nothing,
      "Version 2, 6.4.3: the requester ends the RPC of that XID.", nullptr},
     [](Stage& s) { error_ends_the_call(s, kSystem); }},
    {{"V2_121_an_unknown_code_ends_the_call", Level::Decision, Needs::Nothing,
      "D2-48: an unknown code has no known body, and the error is permanent.", nullptr},
     [](Stage& s) {
       error_ends_the_call(s, kUnknown);
       error_ends_the_call(s, kUnknown, {1, 2, 3});
     }},
};

}  // namespace

std::span<const Provocation> errors_of_version_2() {
  return kErrors;
}

// --- Messages that a client must refuse by an ERROR of the right code: properties, and calls in the reverse
// direction

namespace {

using v2::Header;

Bytes reverse_call(std::uint32_t xid) {
  return rpc_call(xid, kCallBack, 1, 0);
}

/// Sends messages that the client must refuse, and checks for its ERROR about the last of them.
void expect_refusal(Stage& s, const std::vector<Bytes>& messages, std::uint32_t code,
                    const std::string& name) {
  const WaitingCall call = s.await_call();
  const auto visit = call.visit;
  s.responder.serve(call);
  for (const Bytes& message : messages)
    if (!visit->ended) s.responder.send(*visit, message);
  const std::uint32_t xid = word_at(messages.back(), 0);
  s.responder.wait(s.patience_ns(), [&] {
    if (!s.responder.waiting().empty()) s.responder.serve(s.responder.take());
    return visit->ended || visit->talk.v2.refusal_of(xid).has_value();
  });
  const auto refusal = visit->talk.v2.refusal_of(xid);
  visit->talk.errors = 0;
  s.expect(!visit->ended, "the connection to stay");
  s.expect(refusal == code, "an ERROR " + name + " with the XID of the message");
  s.serve(1);
}
void expect_refusal(Stage& s, const Bytes& message, std::uint32_t code, const std::string& name) {
  expect_refusal(s, std::vector<Bytes>{message}, code, name);
}

const Provocation kRefusals[] = {
    {{"V2_054_V2_110_a_property_of_a_wrong_length_is_refused", Level::Must, Needs::Nothing,
      "Version 2, 5.1: BAD_XDR for data that does not fit the type.", nullptr},
     [](Stage& s) {
       expect_refusal(s,
                      Header{.xid = next_xid(), .type = v2::kConnProp}.then({1, kReceiveSize, 3, 0x01020300}),
                      2, "BAD_XDR");
     }},
    {{"V2_055_a_property_beyond_the_message_is_refused", Level::Must, Needs::Nothing,
      "Version 2, 5.1: BAD_XDR for a length beyond the message, even of an unknown id.", nullptr},
     [](Stage& s) {
       expect_refusal(s, Header{.xid = next_xid(), .type = v2::kConnProp}.then({1, 0x7FFF0001, 0xFFFFFFF0}),
                      2, "BAD_XDR");
       expect_refusal(s, Header{.xid = next_xid(), .type = v2::kConnProp}.then({0x20000000}), 2, "BAD_XDR");
     }},
    {{"V2_030_V2_111_unknown_header_types_are_refused", Level::Must, Needs::Nothing,
      "Version 2, 6.2 and 6.4.3: INVAL_HTYPE, even for RDMA_MSGP of version 1.", nullptr},
     [](Stage& s) {
       for (const std::uint32_t type : {2u, 6u})
         expect_refusal(s, Header{.xid = next_xid(), .type = type}.bytes(), 3, "INVAL_HTYPE");
     }},
    {{"V2_023_V2_112_unknown_flags_are_refused", Level::Must, Needs::Nothing,
      "Version 2, 6.4.3: INVAL_FLAG; the message is not processed.", nullptr},
     [](Stage& s) {
       const std::uint32_t xid = next_xid();
       expect_refusal(s, Header{.xid = xid, .flags = 4}.with(rpc_call(xid, kCallBack, 1, 0)), 4,
                      "INVAL_FLAG");
     }},
    {{"V2_087_a_NOMSG_in_parts_is_refused", Level::Must, Needs::Nothing,
      "Version 2, 6.3.2.2: INVAL_FLAG for MORE with any type but MSG and CONNPROP.", nullptr},
     [](Stage& s) {
       expect_refusal(s, Header{.xid = next_xid(), .type = v2::kNoMsg, .flags = v2::kMore}.bytes(), 4,
                      "INVAL_FLAG");
     }},
    {{"V2_086_parts_with_two_XIDs_are_refused", Level::Must, Needs::Nothing,
      "Version 2, 6.3.2.2: INVAL_FLAG; D2-40: for each of the XIDs.", nullptr},
     [](Stage& s) {
       const std::uint32_t first = next_xid();
       const std::uint32_t second = next_xid();
       const Bytes payload = rpc_call(first, kCallBack, 1, 0);
       expect_refusal(s,
                      std::vector{Header{.xid = first, .flags = v2::kMore}.with(std::span(payload).first(20)),
                                  Header{.xid = second}.with(std::span(payload).subspan(20))},
                      4, "INVAL_FLAG");
     }},
    {{"V2_088_chunks_beside_MORE_are_refused", Level::Must, Needs::Nothing,
      "Version 2, 6.3.2.2: INVAL_FLAG for a part that is not the last and has a Read list.", nullptr},
     [](Stage& s) {
       const std::uint32_t xid = next_xid();
       const Header part{.xid = xid, .flags = v2::kMore, .reads = {{24, {rdma::Rkey{0xEE1}, 4, 0x1000}}}};
       expect_refusal(s, part.with(reverse_call(xid)), kInvalFlag, "INVAL_FLAG");
     }},
    {{"V2_070_octets_behind_the_body_are_refused", Level::Decision, Needs::Nothing,
      "D2-31: BAD_XDR for a grant, and for properties, that octets follow.", nullptr},
     [](Stage& s) {
       Bytes grant = Header{.xid = next_xid(), .type = v2::kNoMsg}.bytes();
       append(grant, words({0}));
       expect_refusal(s, grant, kBadXdr, "BAD_XDR");
       expect_refusal(s, Header{.xid = next_xid(), .type = v2::kConnProp}.then({0, 0}), kBadXdr, "BAD_XDR");
     }},
    {{"V2_093_a_MSG_without_payload_is_refused", Level::Decision, Needs::Nothing,
      "D2-30: BAD_XDR, since rdma_rpc_first_word is missing.", nullptr},
     [](Stage& s) { expect_refusal(s, Header{.xid = next_xid()}.bytes(), kBadXdr, "BAD_XDR"); }},
    {{"V2_021_a_reverse_call_with_two_XIDs_is_refused", Level::Decision, Needs::Nothing,
      "D2-49: BAD_XDR, with the XID of the header.", nullptr},
     [](Stage& s) {
       const std::uint32_t xid = next_xid();
       expect_refusal(s, Header{.xid = xid}.with(reverse_call(~xid)), kBadXdr, "BAD_XDR");
     }},
    {{"V2_027_a_Reply_without_RESPONSE_is_refused", Level::Decision, Needs::Nothing,
      "D2-11: INVAL_FLAG if RESPONSE is clear and msg_type is REPLY.", nullptr},
     [](Stage& s) {
       const std::uint32_t xid = next_xid();
       expect_refusal(s, Header{.xid = xid}.with(empty_reply(xid)), kInvalFlag, "INVAL_FLAG");
     }},
};

}  // namespace

std::span<const Provocation> refusals_of_version_2() {
  return kRefusals;
}

}  // namespace sluice::conformance
