// SPDX-License-Identifier: Apache-2.0
//
// Rules for a client of version 2: the prefix, its first message, credits, sizes, parts, and messages other
// than RPC.
#include <cstdint>
#include <string>
#include <vector>

#include "cli/conformance/call_checks.h"
#include "cli/conformance/v2_calls.h"
#include "dataplane/base/small_algorithms.h"

namespace sluice::conformance {
namespace {

constexpr std::uint32_t kFirstMessageBytes = 1024;
constexpr std::uint32_t kKnownFlags = v2::kResponse | v2::kMore;

/// Reports whether the message has a prefix of version 2. Messages without one break another rule.
bool has_prefix(const ClientMessage& message) {
  return message.bytes.size() >= kPrefixBytes && message.header.version == 2;
}
/// Reports whether the message is ERR_VERS in the form of version 1, which has the version of the message
/// that it refers to (D2-01).
bool is_version_error(const Bytes& message) {
  return message.size() == 28 && word_at(message, 3) == v2::kError && word_at(message, 4) == 1;
}
bool is_type(const Sight& s, std::uint32_t type) {
  return has_prefix(*s.message) && s.message->header.proc == type;
}
bool carries_rpc(const Sight& s) {
  return has_prefix(*s.message) && s.message->header.proc <= v2::kNoMsg && !s.message->is_grant();
}

/// Returns the size in octets of an ERROR with this code, or zero if the code is unknown.
std::size_t error_bytes(std::uint32_t code, std::size_t bytes) {
  switch (code) {
    case 1:
      return bytes == 28 ? 28 : 32;  // D2-01
    case 2:
    case 3:
    case 4:
    case 10:
      return 24;
    case 8:
      return 32;
    default:
      return code >= 5 && code <= 9 ? 28 : 0;
  }
}

/// Calls `ask(segment)` for each segment of the message.
template <typename Ask>
void for_segments(const RawCall& header, Ask ask) {
  for (const RawRead& read : header.reads) ask(read.segment);
  for (const auto& chunk : header.writes)
    for (const auto& segment : chunk) ask(segment);
  if (header.reply)
    for (const auto& segment : *header.reply) ask(segment);
}

const Rule kClientV2Rules[] = {
    {{"V2_002_V2_003_V2_017_each_message_has_the_prefix_of_version_2", Level::Must, Needs::Nothing,
      "Version 2, 4.2, 4.3.3.3 and 6.3.1: each Send begins with the prefix, and the version does not change "
      "during a connection.",
      nullptr},
     "a message",
     What::Message,
     [](const Sight& s, Finding& f) {
       if (is_version_error(s.message->bytes)) return;
       f.holds(has_prefix(*s.message), "20 octets or more, and version 2 in the second word");
     }},
    {{"V2_022_V2_158_no_flags_but_RESPONSE_and_MORE_are_set", Level::Must, Needs::Nothing,
      "Version 2, 6.3.2 and B.1: the other flags are zero.", nullptr},
     "a message",
     What::Message,
     [](const Sight& s, Finding& f) {
       if (has_prefix(*s.message)) f.holds((s.message->flags & ~kKnownFlags) == 0, "flags of 0 to 3");
     }},
    {{"V2_029_no_header_type_but_0_1_4_and_5_is_sent", Level::Must, Needs::Nothing,
      "Version 2, 6.2 and B.1: other types are sent only to a peer that is known to support them.", nullptr},
     "a message",
     What::Message,
     [](const Sight& s, Finding& f) {
       const std::uint32_t type = s.message->header.proc;
       if (has_prefix(*s.message))
         f.holds(type <= v2::kNoMsg || type == v2::kError || type == v2::kConnProp,
                 "MSG, NOMSG, ERROR or CONNPROP");
     }},
    {{"V2_066_V2_068_a_header_can_be_read_to_its_end", Level::Must, Needs::Nothing,
      "Version 2, 6.3.3 and 6.4: a header has rdma_inv_handle, Read list, Write list and Reply chunk, with 0 "
      "or 1 before each entry.",
      nullptr},
     "a MSG or NOMSG",
     What::Message,
     [](const Sight& s, Finding& f) {
       if (has_prefix(*s.message) && s.message->header.proc <= v2::kNoMsg)
         f.holds(s.message->readable(), "a whole header, but " + s.message->defect);
     }},
    {{"V2_006_V2_007_the_first_message_is_short", Level::Must, Needs::Nothing,
      "Version 2, 4.3.3: the first message has at most 1024 octets, because the responder's sizes are "
      "unknown. D2-01: it has no chunks.",
      nullptr},
     "a first message",
     What::Message,
     [](const Sight& s, Finding& f) {
       if (s.at.messages != 1) return;
       f.holds(s.message->bytes.size() <= kFirstMessageBytes, "at most 1024 octets");
       f.holds(!s.message->has_chunks() && !s.message->more(), "neither chunks nor parts");
     }},
    {{"V2_008_nothing_follows_the_first_message_before_its_answer", Level::Must, Needs::Nothing,
      "Version 2, 4.3.3: one message is outstanding until credits have been granted.", nullptr},
     "a first message",
     What::Message,
     [](const Sight& s, Finding& f) {
       if (!s.at.v2.has_granted() && s.at.v2.errors_sent() == 0)
         f.holds(!s.at.v2.beyond_grant(), "one message alone");
     }},
    {{"V2_009_an_ERROR_as_first_answer_gives_one_credit_back", Level::Decision, Needs::Nothing,
      "D2-16: the ERROR's credit word is ignored; the initial credit may be used again.", nullptr},
     "a message between an ERROR as first answer and the first grant",
     What::Message,
     [](const Sight& s, Finding& f) {
       if (!s.at.v2.has_granted() && s.at.v2.errors_sent() > 0)
         f.holds(!s.at.v2.beyond_grant(), "one message for each ERROR");
     }},
    {{"V2_035_V2_042_V2_090_no_message_is_sent_without_a_credit", Level::Must, Needs::Nothing,
      "Version 2, 4.3.1.1 and 4.3.1.2: each Send uses a credit, as does each part of a message; one grant "
      "may be sent without.",
      nullptr},
     "a message behind a first grant",
     What::Message,
     [](const Sight& s, Finding& f) {
       if (s.at.v2.has_granted()) f.holds(!s.at.v2.beyond_grant(), "a message within the credits");
     }},
    {{"V2_033_V2_036_the_limit_of_credits_is_not_zero", Level::Must, Needs::Nothing,
      "Version 2, 4.3.1.1: the limit is the high half of the credit word; the first message has one, too.",
      nullptr},
     "a message",
     What::Message,
     [](const Sight& s, Finding& f) {
       if (!has_prefix(*s.message)) return;
       const std::uint32_t word = s.message->header.credits;
       f.holds(word >> 16 != 0, "a high half of 1 or more");
       if (s.at.messages == 1) f.holds((word & 0xFFFF) != 0, "a low half of 1 or more in the first message");
     }},
    {{"V2_041_a_grant_is_four_zero_words", Level::Must, Needs::Nothing,
      "Version 2, 6.4.2: the XID of a grant is zero; D2-18: so is its rdma_inv_handle.", nullptr},
     "a grant without payload",
     What::Message,
     [](const Sight& s, Finding& f) {
       if (s.message->is_grant())
         f.holds(s.message->header.xid == 0 && s.message->invalidate == 0, "an XID and a handle of zero");
     }},
    {{"V2_070_nothing_is_behind_the_header_of_a_NOMSG", Level::Must, Needs::Nothing,
      "Version 2, 6.2 and 6.4.2: a NOMSG has no payload.", nullptr},
     "a NOMSG",
     What::Message,
     [](const Sight& s, Finding& f) {
       if (is_type(s, v2::kNoMsg) && s.message->readable())
         f.holds(s.message->payload().empty(), "a NOMSG that ends with its header");
     }},
    {{"V2_025_RESPONSE_is_set_in_ERROR_alone_where_there_is_no_payload", Level::Must, Needs::Nothing,
      "Version 2, 6.3.2.1; D2-10: RESPONSE is clear in CONNPROP and in grants.", nullptr},
     "a grant, CONNPROP or ERROR",
     What::Message,
     [](const Sight& s, Finding& f) {
       if (s.message->is_grant() || is_type(s, v2::kConnProp) || is_type(s, v2::kError))
         f.holds(s.message->response() == is_type(s, v2::kError), "RESPONSE in ERROR, and nowhere else");
     }},
    {{"V2_024_V2_020_RESPONSE_and_XID_are_those_of_the_RPC_message", Level::Must, Needs::Nothing,
      "Version 2, 6.3.2.1: RESPONSE is clear in a Call and set in a Reply; 6.4.2: the XID of the header is "
      "that of the message.",
      nullptr},
     "the beginning of an RPC message in a MSG",
     What::Message,
     [](const Sight& s, Finding& f) {
       const auto payload = s.message->payload();
       if (!s.message->is_rpc() || !is_type(s, v2::kMsg) || !s.at.v2.begins() || payload.size() < 8) return;
       f.holds(word_at(payload, 0) == s.message->header.xid, "one XID");
       f.holds(word_at(payload, 1) == (s.message->response() ? 1u : 0u), "RESPONSE as msg_type is");
     }},
    {{"V2_047_V2_046_V2_011_no_message_is_longer_than_both_ends_have_said", Level::Must, Needs::Nothing,
      "Version 2, 4.3.2, 5.2.1 and 5.2.2: the responder's Receive Buffer Size and the client's Maximum Send "
      "Size limit a message; they are 4096 octets by default.",
      nullptr},
     "a message",
     What::Message,
     [](const Sight& s, Finding& f) {
       const std::uint32_t most = smaller_of(s.at.receive_bytes, s.at.v2.client().send_bytes);
       f.holds(s.message->bytes.size() <= most, "at most " + std::to_string(most) + " octets in a Send");
     }},
    {{"V2_050_segments_are_no_longer_than_the_responder_takes", Level::Must, Needs::Nothing,
      "Version 2, 5.2.3: the responder's Maximum RDMA Segment Size is 1048576 octets by default.", nullptr},
     "a chunk",
     What::Message,
     [](const Sight& s, Finding& f) {
       for_segments(s.message->header, [&](const rpcrdma::Segment& segment) {
         f.holds(segment.length <= s.at.segment_bytes,
                 "segments of at most " + std::to_string(s.at.segment_bytes) + " octets");
       });
     }},
    {{"V2_051_a_header_has_no_more_segments_than_the_responder_takes", Level::Must, Needs::Nothing,
      "Version 2, 5.2.4: the responder's Maximum RDMA Segment Count is 16 by default.", nullptr},
     "a chunk",
     What::Message,
     [](const Sight& s, Finding& f) {
       std::uint32_t segments = 0;
       for_segments(s.message->header, [&](const rpcrdma::Segment&) { ++segments; });
       if (segments > 0)
         f.holds(segments <= s.at.segments, "at most " + std::to_string(s.at.segments) + " segments");
     }},
    {{"V2_085_V2_086_parts_of_a_message_stand_together", Level::Must, Needs::Nothing,
      "Version 2, 4.2 and 6.3.2.2: the parts have one XID and one type; only grants and ERRORs may be sent "
      "between them.",
      nullptr},
     "a message behind a part with MORE",
     What::Message,
     [](const Sight& s, Finding& f) {
       if (s.at.v2.breaks_sequence() || !s.at.v2.begins())
         f.holds(!s.at.v2.breaks_sequence(), "the next part of the message that was begun");
     }},
    {{"V2_087_MORE_is_set_in_MSG_and_CONNPROP_alone", Level::Must, Needs::Nothing,
      "Version 2, 6.3.2.2: no other type has parts.", nullptr},
     "a message with MORE",
     What::Message,
     [](const Sight& s, Finding& f) {
       if (has_prefix(*s.message) && s.message->more())
         f.holds(is_type(s, v2::kMsg) || is_type(s, v2::kConnProp), "MORE in MSG and CONNPROP alone");
     }},
    {{"V2_088_chunks_are_in_the_last_part", Level::Must, Needs::Nothing,
      "Version 2, 6.3.2.2: with MORE the lists are empty; D2-39: rdma_inv_handle is zero.", nullptr},
     "a MSG with MORE",
     What::Message,
     [](const Sight& s, Finding& f) {
       if (is_type(s, v2::kMsg) && s.message->more())
         f.holds(!s.message->has_chunks() && s.message->invalidate == 0, "four zero words");
     }},
    {{"V2_093_each_part_has_payload", Level::Decision, Needs::Nothing,
      "D2-30: each part has payload, because rdma_rpc_first_word is its beginning.", nullptr},
     "a MSG",
     What::Message,
     [](const Sight& s, Finding& f) {
       if (is_type(s, v2::kMsg) && s.message->readable()) f.holds(!s.message->payload().empty(), "a payload");
     }},
    {{"V2_125_the_handle_to_invalidate_is_of_the_same_header", Level::Must, Needs::Nothing,
      "Version 2, 6.3.3.2: rdma_inv_handle is one of the call's own handles, or zero; D2-51: zero in a "
      "Reply.",
      nullptr},
     "an RPC message",
     What::Message,
     [](const Sight& s, Finding& f) {
       if (!carries_rpc(s)) return;
       bool own = s.message->invalidate == 0;
       if (!s.message->response())
         for_segments(s.message->header, [&](const rpcrdma::Segment& segment) {
           own |= static_cast<std::uint32_t>(segment.handle) == s.message->invalidate;
         });
       f.holds(own, "zero, or a handle of this message");
     }},
    {{"V2_107_V2_108_an_ERROR_is_about_a_message_that_is_no_Reply", Level::Must, Needs::Nothing,
      "Version 2, 6.4.3; D2-07: errors in Replies and in ERRORs are not answered.", nullptr},
     "an ERROR of the client",
     What::Message,
     [](const Sight& s, Finding& f) {
       if (is_type(s, v2::kError))
         f.holds(s.at.v2.has_asked(s.message->header.xid),
                 "the XID of a call in the reverse direction, or of properties");
     }},
    {{"V2_106_V2_109_V2_110_V2_111_V2_112_an_ERROR_has_the_form_of_its_code", Level::Must, Needs::Nothing,
      "Version 2, 6.4.3: the code follows the prefix, and the fields of the code follow it.", nullptr},
     "an ERROR of the client",
     What::Message,
     [](const Sight& s, Finding& f) {
       const std::size_t bytes = s.message->bytes.size();
       if (is_type(s, v2::kError))
         f.holds(bytes == error_bytes(word_at(s.message->bytes, 5), bytes),
                 "a code of 1 to 10 and its words");
     }},
    {{"V2_044_an_ERROR_grants_nothing", Level::Decision, Needs::Nothing,
      "Version 2, 6.4.3: the credit word of an ERROR is ignored; D2-16: its low half is zero.", nullptr},
     "an ERROR of the client",
     What::Message,
     [](const Sight& s, Finding& f) {
       if (is_type(s, v2::kError)) f.holds((s.message->header.credits & 0xFFFF) == 0, "a low half of zero");
     }},
    {{"V2_134_V2_137_a_Reply_in_the_reverse_direction_has_no_chunks", Level::Must, Needs::Nothing,
      "Version 2, 5.2.5: the calls in the reverse direction had no chunks, so their Replies have none.",
      nullptr},
     "a Reply of the client to a reverse call",
     What::Message,
     [](const Sight& s, Finding& f) {
       if (carries_rpc(s) && s.message->response()) f.holds(!s.message->has_chunks(), "three empty lists");
     }},
    {{"V2_052_V2_054_V2_055_properties_have_the_form_of_their_types", Level::Must, Needs::Nothing,
      "Version 2, 5.1 and 5.2: ids 1 to 5 have one word, id 6 an opaque, or no data. D2-23: each occurs "
      "once.",
      nullptr},
     "properties",
     What::Properties,
     [](const Sight& s, Finding& f) {
       f.holds(s.properties->defect.empty(), "a whole set, but " + s.properties->defect);
       std::vector<std::uint32_t> known;
       for (const auto& [id, data] : s.properties->entries) {
         if (id >= kSendSize && id <= kReverseSupport)
           f.holds(data.empty() || data.size() == 4, "4 octets for id " + std::to_string(id));
         if (id == kHostAuthentication)
           f.holds(data.empty() || data.size() == 4 + padded(word_at(data, 0)), "an opaque as id 6");
         if (id >= kSendSize && id <= kHostAuthentication)
           f.holds(!has_element(known, id), "id " + std::to_string(id) + " once");
         known.push_back(id);
       }
     }},
    {{"V2_058_properties_but_authentication_are_told_once", Level::Should, Needs::Nothing,
      "Version 2, 6.4.4: all relevant properties are sent at once, and do not change later.", nullptr},
     "properties",
     What::Properties,
     [](const Sight& s, Finding& f) {
       for (const auto& entry : s.properties->entries)
         if (entry.id >= kSendSize && entry.id <= kReverseSupport)
           f.holds(!s.at.v2.knows_client(), "ids 1 to 5 in the first set alone");
     }},
    {{"V2_038_V2_048_a_message_finds_a_Receive_that_is_large_enough", Level::Must, Needs::Nothing,
      "Version 2, 4.3.1.1 and 5.2.2: each credit has a Receive, of the announced size or of 4096 octets.",
      nullptr},
     "a reply",
     What::Transfer,
     checks::reply_is_received},
    {{"V2_144_the_memory_of_Read_chunks_can_be_read", Level::Must, Needs::Nothing,
      "Version 2, 10.1.3: the memory is registered before the call is sent, and remains so until its reply.",
      nullptr},
     "a Read chunk",
     What::Transfer,
     checks::read_chunk_can_be_read},
    {{"V2_144_V2_141_the_memory_of_Write_and_Reply_chunks_can_be_written", Level::Must, Needs::Nothing,
      "Version 2, 10.1.3: the memory is registered before the call is sent, and remains so until its reply.",
      nullptr},
     "a Write chunk or Reply chunk that was used",
     What::Transfer,
     checks::write_chunk_can_be_written},
};

}  // namespace

std::span<const Rule> rules_of_version_2_messages() {
  return kClientV2Rules;
}

}  // namespace sluice::conformance
