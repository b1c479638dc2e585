// SPDX-License-Identifier: Apache-2.0
//
// Version 2: properties, and the sizes that follow from them, at the server.
#include <algorithm>

#include "cli/conformance/tests.h"
#include "cli/conformance/v2_calls.h"

namespace sluice::conformance {
namespace {

using v2::Header;

void open_with(Trial& t, std::initializer_list<Property> list) {
  t.connect();
  t.open_v2(properties(t.next_xid(), list));
}

/// Length of the longest message that was heard, from number `first` on.
std::size_t longest(const Trial& t, std::size_t first = 0) {
  std::size_t bytes = 0;
  for (std::size_t i = first; i < t.heard().size(); ++i) bytes = std::max(bytes, t.heard()[i].size());
  return bytes;
}

/// Reads so much without chunks; the length of the longest message that this took.
std::size_t longest_of_read(Trial& t, std::uint32_t count) {
  const std::size_t before = t.heard().size();
  const ReadResult result = read_result(joined(t, t.ask(read_v2_call(t, t.next_xid(), count))));
  t.expect(result.count == count && has_pattern(std::span(result.inline_data).first(count), kFileSeed),
           "the data of the file");
  return longest(t, before);
}

/// A WRITE whose message has exactly this length.
Bytes write_of(Trial& t, std::uint32_t xid, std::uint32_t message_bytes) {
  const std::size_t around = Header{.xid = xid}.with(write_payload(xid, t.target.file, 0, 0)).size();
  const auto count = static_cast<std::uint32_t>(message_bytes - around);
  Bytes payload = write_payload(xid, t.target.file, 0, count);
  for (std::uint32_t i = 0; i < count; ++i) payload.push_back(pattern_byte(kFileSeed, i));
  return Header{.xid = xid}.with(payload);
}

const Test kTests[] = {
    {"V2_011_messages_of_4096_octets_go_both_ways_from_the_second_on", Level::Must, Needs::File,
     "Version 2, 4.3.2: buffers of 4096 octets, whatever was or was not said in properties.",
     [](Trial& t) {
       t.connect_v2();
       t.expect(nfs_status(read_v2(t.ask(write_of(t, t.next_xid(), kDefaultThreshold))).payload) == 0,
                "a WRITE in a message of 4096 octets succeeds");
       const std::size_t around = t.ask(read_v2_call(t, t.next_xid(), 4)).size() - 4;
       const auto fits = static_cast<std::uint32_t>(kDefaultThreshold - around);
       t.expect(longest_of_read(t, fits) == kDefaultThreshold, "a reply of 4096 octets");
     }},
    {"V2_019_private_data_changes_nothing", Level::Decision, Needs::File,
     "D2-06: what was said for version 1 does not hold for version 2.",
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
       std::uint32_t calls = std::clamp(t.credits_v2(), 1u, 32u);
       for (std::uint32_t i = 0; i < calls; ++i)
         t.send(write_of(t, t.next_xid(), std::min(*bytes, 65536u) / 4 * 4));
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
     "Version 2, 6.4.4: what was not in the first set keeps its default.",
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
     "Version 2, 5.2.5: it is no fault.",
     [](Trial& t) {
       open_with(t, {{kReverseSupport, 77}});
       t.expect_alive();
       t.expect(t.overheard() == 0, "no ERROR");
     }},
    {"V2_063_authentication_may_take_several_long_messages", Level::Should, Needs::Nothing,
     "Version 2, 5.2.6 and C.5: they are no faults, whether the server uses them or not.",
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
     "D2-20: they are raised to 1024 octets, or cut to what the server has.",
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
  return kTests;
}

}  // namespace sluice::conformance
