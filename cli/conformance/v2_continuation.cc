// SPDX-License-Identifier: Apache-2.0
//
// Version 2: messages in several parts at the server.
#include <algorithm>

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

/// The payloads of all parts of the reply that were heard.
Bytes heard_of(const Trial& t, std::uint32_t xid) {
  Bytes payload;
  for (const Bytes& message : t.heard())
    if (word_at(message, 0) == xid && word_at(message, 3) == v2::kMsg)
      append(payload, read_v2(message).payload);
  return payload;
}

/// The ERRORs of this RPC that were heard.
std::vector<Bytes> errors_of(const Trial& t, std::uint32_t xid) {
  std::vector<Bytes> errors;
  for (const Bytes& message : t.heard())
    if (word_at(message, 0) == xid && word_at(message, 3) == v2::kError) errors.push_back(message);
  return errors;
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
    {"V2_085_parts_of_two_replies_are_not_mixed", Level::Must, Needs::File,
     "Version 2, 4.2: a message in parts ends before the next one begins.",
     [](Trial& t) {
       t.connect_v2();
       std::vector<std::uint32_t> xids;
       for (int i = 0; i < 4; ++i) {
         xids.push_back(t.next_xid());
         t.send(read_v2_call(t, xids.back(), 10001));
       }
       std::uint32_t current = 0;
       for (std::size_t ended = 0; ended < xids.size();) {
         const Bytes part = t.answer();
         t.expect(current == 0 || word_at(part, 0) == current, "the next part of the reply that has begun");
         const bool more = (word_at(part, 4) & v2::kMore) != 0;
         current = more ? word_at(part, 0) : 0;
         ended += more ? 0 : 1;
       }
       for (const std::uint32_t xid : xids) {
         const ReadResult result = read_result(heard_of(t, xid));
         t.expect(has_pattern(std::span(result.inline_data).first(result.count), kFileSeed) &&
                      result.count == 10001,
                  "each READ succeeds");
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
    {"V2_090_a_reply_waits_for_credits_between_its_parts", Level::Must, Needs::File,
     "Version 2, 6.3.2.2: a sender that has no credit in the middle of a message waits for more.",
     [](Trial& t) {
       constexpr std::uint32_t kCredits = 1;  // and the one to begin with
       t.connect();
       t.open_v2(properties(t.next_xid(), {}, kCredits));
       const std::uint32_t xid = t.next_xid();
       t.send(read_v2_call(t, xid, kFileBytes, kNoCredits));
       t.overheard();
       const auto grants = std::count_if(t.heard().begin(), t.heard().end(), v2::is_grant);
       t.expect(t.heard().size() <= kCredits + 1 + static_cast<std::size_t>(grants),
                "no more properties and parts than there are credits");
       t.expect(heard_of(t, xid).size() < kFileBytes, "not all of the reply");
       t.send(Header{.xid = 0, .credit = kNoCredits | 20, .type = v2::kNoMsg}.bytes());
       while ((word_at(t.answer(), 4) & v2::kMore) != 0) {
       }
       const ReadResult result = read_result(heard_of(t, xid));
       t.expect(result.count == kFileBytes && has_pattern(result.inline_data, kFileSeed),
                "the READ succeeds");
     }},
    {"V2_091_credits_come_in_the_middle_of_a_message", Level::Must, Needs::File,
     "Version 2, 6.3.2.2 and 4.3.1.2: a call may have more parts than the server ever grants at once.",
     [](Trial& t) {
       constexpr std::uint32_t kCount = 8192;
       t.connect_v2();
       const std::uint32_t limit = word_at(t.heard().at(0), 2) >> 16;
       const std::uint32_t xid = t.next_xid();
       Bytes payload = write_payload(xid, t.target.file, 0, kCount);
       for (std::uint32_t i = 0; i < kCount; ++i) payload.push_back(pattern_byte(kFileSeed, i));
       const std::size_t bytes = payload.size() / (limit + 8) / 4 * 4;
       if (bytes < 4) t.skip("The server grants more credits than the message of this test has parts.");
       send_in_parts(t, {.xid = xid}, payload, bytes);
       t.expect(nfs_status(joined(t, t.answer())) == 0, "the WRITE succeeds");
     }},
    {"V2_092_V2_120_a_call_beyond_the_limit_is_refused_and_drained", Level::Decision, Needs::File,
     "D2-41 and D2-50: SYSTEM, once; what follows of the call is dropped.",
     [](Trial& t) {
       constexpr std::uint32_t kMostParts = 1200, kPartBytes = 4060;
       t.connect_v2();
       const std::uint32_t xid = t.next_xid();
       Bytes payload = write_payload(xid, t.target.file, 0, kMostParts * kPartBytes);
       payload.resize(kPartBytes);
       const Header part{.xid = xid, .flags = v2::kMore};
       for (std::uint32_t i = 0; i < kMostParts && errors_of(t, xid).empty(); ++i) t.send(part.with(payload));
       t.send(Header{.xid = xid}.with(payload));
       t.overheard();
       if (heard_of(t, xid).size() > 0) t.skip("The server takes longer calls than are tried.");
       t.expect_alive();
       const std::vector<Bytes> errors = errors_of(t, xid);
       t.expect(errors.size() == 1, "one ERROR");
       t.expect(v2::is_error(errors[0], xid, 10) && errors[0].size() == 24, "SYSTEM, in 24 octets");
     }},
    {"V2_093_a_part_without_payload_is_refused", Level::Decision, Needs::Nothing, "D2-30: BAD_XDR.",
     [](Trial& t) {
       t.connect_v2();
       const std::uint32_t xid = t.next_xid();
       t.expect(v2::is_error(t.ask(Header{.xid = xid, .flags = v2::kMore}.bytes()), xid, 2),
                "an ERROR BAD_XDR");
     }},
    {"V2_095_calls_that_never_end_leave_nothing_behind", Level::Decision, Needs::File,
     "What has come of a message goes with its connection.",
     [](Trial& t) {
       for (int i = 0; i < 20; ++i) {
         t.connect_v2();
         const std::uint32_t xid = t.next_xid();
         Bytes payload = write_payload(xid, t.target.file, 0, kFileBytes);
         payload.resize(4000);
         for (int n = 0; n < 8; ++n) t.send(Header{.xid = xid, .flags = v2::kMore}.with(payload));
         t.overheard();
       }
       t.connect_v2();
       const std::uint32_t xid = t.next_xid();
       Bytes payload = write_payload(xid, t.target.file, 0, 8192);
       for (std::uint32_t i = 0; i < 8192; ++i) payload.push_back(pattern_byte(kFileSeed, i));
       send_in_parts(t, {.xid = xid}, payload, 4000);
       t.expect(nfs_status(joined(t, t.answer())) == 0, "a WRITE in parts succeeds");
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
