// SPDX-License-Identifier: Apache-2.0
//
// Version 2: messages in several parts at the server, the properties, and the sizes that follow from them.
#include <cstdint>
#include <vector>

#include "cli/conformance/tests.h"
#include "cli/conformance/v2_calls.h"
#include "dataplane/base/small_algorithms.h"

namespace sluice::conformance {
namespace {

using v2::Header;

/// Sends the payload in parts of `bytes` bytes. All parts except the last have MORE.
void send_in_parts(Trial& t, const Header& last, std::span<const std::byte> payload, std::size_t bytes) {
  while (payload.size() > bytes) {
    t.send(Header{.xid = last.xid, .flags = v2::kMore}.with(payload.first(bytes)));
    payload = payload.subspan(bytes);
  }
  t.send(last.with(payload));
}

/// Returns the joined payloads of all received parts of the reply.
Bytes heard_of(const Trial& t, std::uint32_t xid) {
  Bytes payload;
  for (const Bytes& message : t.heard())
    if (word_at(message, 0) == xid && word_at(message, 3) == v2::kMsg)
      append(payload, read_v2(message).payload);
  return payload;
}

/// Returns the received ERRORs of this RPC.
std::vector<Bytes> errors_of(const Trial& t, std::uint32_t xid) {
  std::vector<Bytes> errors;
  for (const Bytes& message : t.heard())
    if (word_at(message, 0) == xid && word_at(message, 3) == v2::kError) errors.push_back(message);
  return errors;
}

const Test kContinuationTests[] = {
    {"V2_084_a_call_in_parts_is_executed", Level::Must, Needs::File,
     "Version 2, 6.3.2.2: parts have any length, and all but the last have MORE.",
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
     "Version 2, 6.3.2.2: all parts have the same XID; otherwise INVAL_FLAG is sent, and the call is not "
     "executed.",
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
     "Version 2, 6.3.2.2 and 4.5.3: reduction and continuation can be combined.",
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
     "Version 2, 6.3.2.2: a sender without credits in the middle of a message waits for a grant.",
     [](Trial& t) {
       constexpr std::uint32_t kCredits = 1;  // in addition to the initial credit
       t.connect();
       t.open_v2(properties(t.next_xid(), {}, kCredits));
       const std::uint32_t xid = t.next_xid();
       t.send(read_v2_call(t, xid, kFileBytes, kNoCredits));
       t.overheard();
       std::size_t grants = 0;
       for (const Bytes& message : t.heard()) grants += v2::is_grant(message);
       t.expect(t.heard().size() <= kCredits + 1 + grants,
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
     "D2-41 and D2-50: SYSTEM is sent once; the remaining parts of the call are dropped.",
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
     "Version 2, 6.3.3.1 and 4.3.2: without a Reply chunk the reply has parts of at most 4096 octets.",
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
  return kContinuationTests;
}

// --- Properties and sizes

namespace {

void open_with(Trial& t, std::initializer_list<Property> list) {
  t.connect();
  t.open_v2(properties(t.next_xid(), list));
}

/// Returns the length of the longest message received, from number `first` on.
std::size_t longest(const Trial& t, std::size_t first = 0) {
  std::size_t bytes = 0;
  for (std::size_t i = first; i < t.heard().size(); ++i) bytes = larger_of(bytes, t.heard()[i].size());
  return bytes;
}

/// Reads `count` bytes without chunks and returns the length of the longest message of the reply.
std::size_t longest_of_read(Trial& t, std::uint32_t count) {
  const std::size_t before = t.heard().size();
  const ReadResult result = read_result(joined(t, t.ask(read_v2_call(t, t.next_xid(), count))));
  t.expect(result.count == count && has_pattern(std::span(result.inline_data).first(count), kFileSeed),
           "the data of the file");
  return longest(t, before);
}

/// Returns a WRITE whose message has exactly this length.
Bytes write_of(Trial& t, std::uint32_t xid, std::uint32_t message_bytes) {
  const std::size_t around = Header{.xid = xid}.with(write_payload(xid, t.target.file, 0, 0)).size();
  const auto count = static_cast<std::uint32_t>(message_bytes - around);
  Bytes payload = write_payload(xid, t.target.file, 0, count);
  for (std::uint32_t i = 0; i < count; ++i) payload.push_back(pattern_byte(kFileSeed, i));
  return Header{.xid = xid}.with(payload);
}

const Test kPropertyTests[] = {
    {"V2_011_messages_of_4096_octets_go_both_ways_from_the_second_on", Level::Must, Needs::File,
     "Version 2, 4.3.2: buffers have 4096 octets, whether or not properties announce that size.",
     [](Trial& t) {
       t.connect_v2();
       t.expect(nfs_status(read_v2(t.ask(write_of(t, t.next_xid(), kDefaultThreshold))).payload) == 0,
                "a WRITE in a message of 4096 octets succeeds");
       const std::size_t around = t.ask(read_v2_call(t, t.next_xid(), 4)).size() - 4;
       const auto fits = static_cast<std::uint32_t>(kDefaultThreshold - around);
       t.expect(longest_of_read(t, fits) == kDefaultThreshold, "a reply of 4096 octets");
     }},
    {"V2_019_private_data_changes_nothing", Level::Decision, Needs::File,
     "D2-06: sizes announced for version 1 do not apply to version 2.",
     [](Trial& t) {
       t.connect_v2(rpcrdma::PrivateData{.send_bytes = 1024, .receive_bytes = 1024});
       t.expect(longest_of_read(t, 3000) > 3000, "3000 bytes in one message");
     }},
    {"V2_048_as_much_as_was_announced_is_received", Level::Must, Needs::File,
     "Version 2, 5.2.2: all Receives are as long as the Receive Buffer Size says.",
     [](Trial& t) {
       t.connect_v2();
       const auto bytes = announced(t, kReceiveSize);
       if (!bytes) t.skip("The server does not say how long its Receives are.");
       std::uint32_t calls = bounded(t.credits_v2(), 1u, 32u);
       for (std::uint32_t i = 0; i < calls; ++i)
         t.send(write_of(t, t.next_xid(), smaller_of(*bytes, 65536u) / 4 * 4));
       for (std::uint32_t i = 0; i < calls; ++i)
         t.expect(nfs_status(read_v2(t.answer()).payload) == 0, "each WRITE succeeds");
     }},
    {"V2_049_V2_047_a_reply_goes_as_the_receiver_can_take_it", Level::Should, Needs::File,
     "Version 2, 5.2.1 and 5.2.2: its Receive Buffer Size decides whether a Reply chunk is used.",
     [](Trial& t) {
       const auto read_with_chunk = [&t](std::uint32_t count) {
         const Exposed memory = t.writable(8192);
         const std::uint32_t xid = t.next_xid();
         const Header call{.xid = xid, .reply = {{memory.segment}}};
         Bytes answer = t.ask(call.with(read_payload(xid, t.target.file, 0, count)));
         if (word_at(answer, 3) == v2::kMsg) joined(t, answer);
         return answer;
       };
       open_with(t, {{kReceiveSize, 2048}});
       t.expect(longest_of_read(t, 5000) <= 2048, "parts of no more than 2048 octets");
       t.expect(read_with_chunk(3000).size() <= 2048, "no more than 2048 octets in a message");
       open_with(t, {{kReceiveSize, 8192}});
       if (announced(t, kSendSize).value_or(kDefaultThreshold) < 8192) return;
       t.expect(longest_of_read(t, 7000) > 7000, "7000 bytes in one message");
       t.expect(read_with_chunk(7000).size() > 7000, "the same, although there is a Reply chunk");
     }},
    {"V2_057_V2_010_who_says_nothing_is_served_by_the_defaults", Level::Must, Needs::File,
     "Version 2, 4.3.3 and 6.4.4: any message may be the first, and a peer may keep to the defaults.",
     [](Trial& t) {
       t.connect();
       const std::uint32_t xid = t.next_xid();
       t.open_v2(read_v2_call(t, xid, 10001, 0x00400040));
       t.expect(read_result(joined(t, t.answer())).count == 10001, "the READ succeeds");
       for (int i = 0; i < 20; ++i) t.expect_alive();
       t.expect(longest(t) <= kDefaultThreshold, "no message beyond the default threshold");
     }},
    {"V2_059_later_properties_change_nothing", Level::Should, Needs::File,
     "Version 2, 6.4.4: a property that was not in the first set keeps its default.",
     [](Trial& t) {
       t.connect_v2();
       for (const std::uint32_t bytes : {8192u, 1024u}) {
         t.send(properties(t.next_xid(), {{kReceiveSize, bytes}}));
         t.overheard();
         const std::size_t longest_part = longest_of_read(t, 6000);
         t.expect(longest_part > 2048 && longest_part <= kDefaultThreshold, "parts of up to 4096 octets");
       }
     }},
    {"V2_061_a_level_of_reverse_support_that_is_unknown_is_the_default", Level::Must, Needs::Nothing,
     "Version 2, 5.2.5: an unknown level is not an error.",
     [](Trial& t) {
       open_with(t, {{kReverseSupport, 77}});
       t.expect_alive();
       t.expect(t.overheard() == 0, "no ERROR");
     }},
    {"V2_063_authentication_may_take_several_long_messages", Level::Should, Needs::Nothing,
     "Version 2, 5.2.6 and C.5: the messages are not errors, whether or not the server uses them.",
     [](Trial& t) {
       constexpr std::uint32_t kOctets = 3000;
       t.connect_v2();
       for (int i = 0; i < 4; ++i) {
         Bytes message =
             Header{.xid = t.next_xid(), .type = v2::kConnProp}.then({1, 6, kOctets + 4, kOctets});
         message.resize(message.size() + kOctets);
         t.send(message);
         t.expect(t.overheard() == 0, "no ERROR");
         if (t.lost()) t.skip("The server does not admit this client.");
       }
       t.expect_alive();
     }},
    {"V2_064_properties_may_come_in_parts", Level::Must, Needs::File,
     "Version 2, 6.3.2.2 and C.5: the bodies are joined, and decoded once.",
     [](Trial& t) {
       t.connect();
       std::uint32_t xid = t.next_xid();
       const Header part{.xid = xid, .credit = 0x00400080, .type = v2::kConnProp, .flags = v2::kMore};
       t.open_v2(part.then({1, kReceiveSize}));
       t.expect_silence(Header{.xid = xid, .type = v2::kConnProp}.then({4, 2048}));
       t.expect(longest_of_read(t, 5000) <= 2048, "parts of no more than 2048 octets, as was asked");
       xid = t.next_xid();
       t.send(Header{.xid = xid, .type = v2::kConnProp, .flags = v2::kMore}.then({1, kReceiveSize}));
       t.expect(t.overheard() == 0, "no ERROR before the last part");
       t.expect(v2::is_error(t.ask(Header{.xid = xid, .type = v2::kConnProp}.then({2, 7})), xid, 2),
                "an ERROR BAD_XDR for all of it");
     }},
    {"V2_065_sizes_that_cannot_be_are_no_faults", Level::Decision, Needs::File,
     "D2-20: such sizes are raised to 1024 octets, or lowered to those of the server.",
     [](Trial& t) {
       open_with(t, {{kSendSize, 0}, {kReceiveSize, 16}, {kSegmentSize, 1}, {kSegmentCount, 0}});
       const std::size_t part = longest_of_read(t, 3000);
       t.expect(part <= 1024 && part > 1024 - 64, "parts of 1024 octets");
       constexpr std::uint32_t kMost = 0xFFFFFFFF;
       open_with(t,
                 {{kSendSize, kMost}, {kReceiveSize, kMost}, {kSegmentSize, kMost}, {kSegmentCount, kMost}});
       longest_of_read(t, 500);
       t.expect(t.overheard() == 0, "no ERROR");
     }},
    {"V2_158_nothing_optional_is_sent_to_who_does_not_know_it", Level::Must, Needs::File,
     "Version 2, B.1 and B.2: header types 0, 1, 4 and 5, and the flags RESPONSE and MORE.",
     [](Trial& t) {
       t.connect_v2();
       const Exposed memory = t.writable(16384);
       std::uint32_t xid = t.next_xid();
       t.ask(
           Header{.xid = xid, .writes = {{memory.segment}}}.with(read_payload(xid, t.target.file, 0, 1001)));
       xid = t.next_xid();
       t.ask(
           Header{.xid = xid, .reply = {{memory.segment}}}.with(read_payload(xid, t.target.file, 0, 10000)));
       longest_of_read(t, 10001);
       t.ask(Header{.xid = t.next_xid(), .type = 9}.bytes());
       t.overheard();
       for (const Bytes& message : t.heard()) {
         const std::uint32_t type = word_at(message, 3);
         t.expect(type <= v2::kNoMsg || type == v2::kError || type == v2::kConnProp,
                  "header types that each peer has to know");
         t.expect(word_at(message, 4) <= (v2::kResponse | v2::kMore), "flags that each peer has to know");
       }
     }},
};

}  // namespace

std::span<const Test> tests_of_version_2_properties() {
  return kPropertyTests;
}

}  // namespace sluice::conformance
