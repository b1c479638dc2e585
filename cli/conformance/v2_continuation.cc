// SPDX-License-Identifier: Apache-2.0
//
// Version 2: messages in several parts at the server.
#include "cli/conformance/tests.h"
#include "cli/conformance/v2_calls.h"

namespace sluice::conformance {
namespace {

using v2::Header;

/// The payload in parts of so many bytes; all but the last have MORE.
void send_in_parts(Trial& t, const Header& last, std::span<const std::byte> payload, std::size_t bytes) {
  while (payload.size() > bytes) {
    t.send(Header{.xid = last.xid, .flags = v2::kMore}.with(payload.first(bytes)));
    payload = payload.subspan(bytes);
  }
  t.send(last.with(payload));
}

const Test kTests[] = {
    {"V2_084_a_call_in_parts_is_executed", Level::Must, Needs::File,
     "Version 2, 6.3.2.2: parts of any length, MORE in all but the last.",
     [](Trial& t) {
       t.connect_v2();
       for (const std::size_t bytes : {100u, 24u, 1000u}) {
         const std::uint32_t xid = t.next_xid();
         Bytes payload = write_payload(xid, t.target.file, 0, 2048);
         for (std::uint32_t i = 0; i < 2048; ++i) payload.push_back(pattern_byte(kFileSeed, i));
         send_in_parts(t, {.xid = xid}, payload, bytes);
         t.expect(nfs_status(joined(t, t.answer())) == 0, "the WRITE succeeds");
         t.expect(has_pattern(content_of(t, 2048), kFileSeed), "the file holds the data");
       }
     }},
    {"V2_086_parts_of_two_messages_are_refused", Level::Must, Needs::Nothing,
     "Version 2, 6.3.2.2: all parts have the same XID, else INVAL_FLAG, and nothing is executed.",
     [](Trial& t) {
       t.connect_v2();
       const std::uint32_t first = t.next_xid();
       const std::uint32_t second = t.next_xid();
       const Bytes payload = null_payload(first);
       t.send(Header{.xid = first, .flags = v2::kMore}.with(std::span(payload).first(20)));
       const Bytes answer = t.ask(Header{.xid = second}.with(std::span(payload).subspan(20)));
       t.expect(v2::is_error(answer, first, 4) || v2::is_error(answer, second, 4), "an ERROR INVAL_FLAG");
     }},
    {"V2_087_MORE_with_types_that_do_not_go_on_is_refused", Level::Must, Needs::Nothing,
     "Version 2, 6.3.2.2: INVAL_FLAG for all but MSG and CONNPROP.",
     [](Trial& t) {
       t.connect_v2();
       const std::uint32_t xid = t.next_xid();
       const Header call{
           .xid = xid, .type = v2::kNoMsg, .flags = v2::kMore, .reads = {{0, t.readable(40, 1).segment}}};
       t.expect(v2::is_error(t.ask(call.bytes()), xid, 4), "an ERROR INVAL_FLAG");
     }},
    {"V2_088_V2_089_chunks_ride_in_the_last_part", Level::Must, Needs::File,
     "Version 2, 6.3.2.2 and 4.5.3: reduction and continuation together.",
     [](Trial& t) {
       t.connect_v2();
       const std::uint32_t xid = t.next_xid();
       const Bytes payload = write_payload(xid, t.target.file, 0, kFileBytes);
       send_in_parts(
           t, {.xid = xid, .reads = {{position_of(payload), t.readable(kFileBytes, kFileSeed).segment}}},
           payload, 60);
       t.expect(nfs_status(joined(t, t.answer())) == 0, "the WRITE succeeds");
       t.expect(has_pattern(content_of(t, kFileBytes), kFileSeed), "the file holds the data");
     }},
    {"V2_088_MORE_with_chunks_is_refused", Level::Must, Needs::Nothing, "Version 2, 6.3.2.2: INVAL_FLAG.",
     [](Trial& t) {
       t.connect_v2();
       const std::uint32_t xid = t.next_xid();
       const Header call{.xid = xid, .flags = v2::kMore, .reads = {{40, t.readable(8, 1).segment}}};
       t.expect(v2::is_error(t.ask(call.with(null_payload(xid))), xid, 4), "an ERROR INVAL_FLAG");
     }},
    {"V2_093_a_part_without_payload_is_refused", Level::Decision, Needs::Nothing, "D2-30: BAD_XDR.",
     [](Trial& t) {
       t.connect_v2();
       const std::uint32_t xid = t.next_xid();
       t.expect(v2::is_error(t.ask(Header{.xid = xid, .flags = v2::kMore}.bytes()), xid, 2),
                "an ERROR BAD_XDR");
     }},
    {"V2_098_V2_046_V2_047_a_reply_beyond_the_threshold_is_continued", Level::Must, Needs::File,
     "Version 2, 6.3.3.1 and 4.3.2: without a Reply chunk, in parts of no more than 4096 octets.",
     [](Trial& t) {
       t.connect_v2();
       const std::uint32_t xid = t.next_xid();
       const Bytes payload =
           joined(t, t.ask(Header{.xid = xid}.with(read_payload(xid, t.target.file, 0, 10001))));
       const ReadResult result = read_result(payload);
       t.expect(result.inline_data.size() == 10004 &&
                    has_pattern(std::span(result.inline_data).first(10001), kFileSeed),
                "10001 bytes and their padding");
       for (const Bytes& message : t.heard()) {
         t.expect(message.size() <= 4096, "no message beyond the default threshold");
         t.expect(word_at(message, 0) == xid || word_at(message, 3) != v2::kMsg, "the same XID in all parts");
       }
     }},
};

}  // namespace

std::span<const Test> tests_of_version_2_continuation() {
  return kTests;
}

}  // namespace sluice::conformance
