// SPDX-License-Identifier: Apache-2.0
//
// What a client of version 2 has to refuse, by an ERROR of the right code: properties, and calls in the reverse direction.
#include "cli/conformance/provoking.h"

namespace sluice::conformance {
namespace {

using v2::Header;

constexpr std::uint32_t kBadXdr = 2;
constexpr std::uint32_t kInvalFlag = 4;

Bytes reverse_call(std::uint32_t xid) {
  return rpc_call(xid, kCallBack, 1, 0);
}

/// Sends what the client has to refuse, and looks for its ERROR about the last of these messages.
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

const Provocation kProvocations[] = {
    {{"V2_054_V2_110_a_property_of_a_wrong_length_is_refused", Level::Must, Needs::Nothing,
      "Version 2, 5.1: BAD_XDR for data that does not fit the type.", nullptr},
     [](Stage& s) {
       expect_refusal(s,
                      Header{.xid = next_xid(), .type = v2::kConnProp}.then({1, kReceiveSize, 3, 0x01020300}),
                      2, "BAD_XDR");
     }},
    {{"V2_055_a_property_beyond_the_message_is_refused", Level::Must, Needs::Nothing,
      "Version 2, 5.1: BAD_XDR for a length that is too long, of an unknown id too.", nullptr},
     [](Stage& s) {
       expect_refusal(s, Header{.xid = next_xid(), .type = v2::kConnProp}.then({1, 0x7FFF0001, 0xFFFFFFF0}),
                      2, "BAD_XDR");
       expect_refusal(s, Header{.xid = next_xid(), .type = v2::kConnProp}.then({0x20000000}), 2, "BAD_XDR");
     }},
    {{"V2_030_V2_111_unknown_header_types_are_refused", Level::Must, Needs::Nothing,
      "Version 2, 6.2 and 6.4.3: INVAL_HTYPE, for RDMA_MSGP of version 1 too.", nullptr},
     [](Stage& s) {
       for (const std::uint32_t type : {2u, 6u})
         expect_refusal(s, Header{.xid = next_xid(), .type = type}.bytes(), 3, "INVAL_HTYPE");
     }},
    {{"V2_023_V2_112_unknown_flags_are_refused", Level::Must, Needs::Nothing,
      "Version 2, 6.4.3: INVAL_FLAG; nothing is done.", nullptr},
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
      "D2-31: BAD_XDR for a grant, and for properties, with something behind them.", nullptr},
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
      "D2-11: INVAL_FLAG where RESPONSE is clear and msg_type says otherwise.", nullptr},
     [](Stage& s) {
       const std::uint32_t xid = next_xid();
       expect_refusal(s, Header{.xid = xid}.with(empty_reply(xid)), kInvalFlag, "INVAL_FLAG");
     }},
};

}  // namespace

std::span<const Provocation> refusals_of_version_2() {
  return kProvocations;
}

}  // namespace sluice::conformance
