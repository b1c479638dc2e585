// SPDX-License-Identifier: Apache-2.0
//
// Version 2: messages, credits and errors at the server.
#include <cstdint>
#include <string>

#include "cli/conformance/tests.h"

namespace sluice::conformance {
namespace {

using v2::Header;

void refused(Trial& t, std::uint32_t xid, const Bytes& message, std::uint32_t code, const char* name) {
  const Bytes answer = t.ask(message);
  t.expect(v2::is_error(answer, xid, code), std::string("an ERROR ") + name);
}
bool is_err_vers(const Bytes& answer, std::uint32_t xid, std::uint32_t version, std::uint32_t low,
                 std::uint32_t high) {
  return answer.size() == 28 && word_at(answer, 0) == xid && word_at(answer, 1) == version &&
         word_at(answer, 3) == 4 && word_at(answer, 4) == 1 && word_at(answer, 5) == low &&
         word_at(answer, 6) == high;
}

/// Checks that the connection continues in version 2 after errors. The server has shown before that it
/// supports version 2, so it must do so here.
void goes_on_in_version_2(Trial& t) {
  try {
    t.open_v2(Header{.xid = t.next_xid(), .credit = 0x00400080, .type = v2::kConnProp}.then({0}));
  } catch (const Skipped&) {
    throw Failure("Expected: version 2 on the connection that had its version refused");
  }
  t.expect_alive();
}

const Test kV2MessageTests[] = {
    {"V2_010_V2_036_the_first_answer_is_of_version_2_and_grants", Level::Must, Needs::Nothing,
     "Version 2, 4.3.3.1 and 4.3.1.1: a server that supports version 2 answers in it, with at least one "
     "credit.",
     [](Trial& t) {
       t.connect_v2();
       const Bytes& first = t.heard().at(0);
       t.expect(word_at(first, 1) == 2 && word_at(first, 3) != v2::kError, "a message of version 2");
       t.expect((word_at(first, 2) & 0xffff) >= 1 && (word_at(first, 2) >> 16) >= 1,
                "a grant of at least one credit");
       t.expect(first.size() <= 4096, "no more than the default buffer takes");
       t.expect_alive();
     }},
    {"V2_058_V2_025_properties_come_once_and_first", Level::Should, Needs::Nothing,
     "Version 2, 6.4.4: CONNPROP generally is the first message; RESPONSE is clear in it.",
     [](Trial& t) {
       t.connect_v2();
       t.expect_alive();
       std::size_t sets = 0;
       for (const Bytes& message : t.heard())
         if (word_at(message, 3) == v2::kConnProp) {
           ++sets;
           t.expect((word_at(message, 4) & v2::kResponse) == 0, "properties without RESPONSE");
         }
       t.expect(sets == 1 && word_at(t.heard()[0], 3) == v2::kConnProp,
                "one set of properties, before all else");
     }},
    {"V2_003_V2_016_everything_is_of_the_version_that_was_agreed", Level::Must, Needs::Nothing,
     "Version 2, 4.3.3.3: the version of the first supported message is used throughout.",
     [](Trial& t) {
       t.connect_v2();
       for (int i = 0; i < 10; ++i) t.expect_alive();
       t.overheard();
       for (const Bytes& message : t.heard()) t.expect(word_at(message, 1) == 2, "version 2 in each message");
     }},
    {"V2_009_errors_give_the_first_credit_back", Level::Decision, Needs::Nothing,
     "D2-16: until the server's first grant, each ERROR returns the initial credit.",
     [](Trial& t) {
       t.connect_v2();
       t.connect();
       for (int i = 0; i < 5; ++i) {
         const std::uint32_t xid = t.next_xid();
         const Bytes answer = t.ask(Header{.xid = xid, .version = 7}.with(null_payload(xid)));
         t.expect(word_at(answer, 0) == xid && word_at(answer, 3) == v2::kError, "ERR_VERS for each");
       }
       goes_on_in_version_2(t);
     }},
    {"V2_014_V2_159_a_connection_goes_on_in_a_version_of_the_range", Level::Must, Needs::Nothing,
     "Version 2, 4.3.3.2, B and C.1: the first four words are those of all versions. A client that has "
     "received the range uses a version of it.",
     [](Trial& t) {
       t.connect_v2();
       t.connect();
       const std::uint32_t xid = t.next_xid();
       const Bytes answer = t.ask(words({xid, 0x80000002, 0x00400001, 0xFFFFFFFF, 0xA5A5A5A5, 0x5A5A5A5A}));
       t.expect(word_at(answer, 0) == xid && word_at(answer, 1) == 0x80000002 && word_at(answer, 2) != 0 &&
                    word_at(answer, 3) == v2::kError && word_at(answer, 4) == 1,
                "ERR_VERS with XID, version and credits in their places");
       t.expect(word_at(answer, 5) <= 2 && word_at(answer, 6) >= 2, "version 2 in the range");
       goes_on_in_version_2(t);
     }},
    {"V2_018_another_version_is_refused_on_a_connection_of_version_2", Level::Decision, Needs::Nothing,
     "D2-02: ERR_VERS with the version that was fixed as the only one.",
     [](Trial& t) {
       t.connect_v2();
       t.expect_alive();
       const std::uint32_t xid = t.next_xid();
       t.expect(is_err_vers(t.ask(null_v1(xid)), xid, 1, 2, 2), "ERR_VERS 2 to 2");
       t.expect_alive();
     }},
    {"V2_004_V2_012_V2_109_the_version_is_judged_before_all_else", Level::Must, Needs::Nothing,
     "Version 2, C.1 and 4.3.3.2: ERR_VERS in the form of RFC 8166, with XID and version of the message.",
     [](Trial& t) {
       t.connect_v2();
       const std::uint32_t xid = t.next_xid();
       const Bytes answer = t.ask(Header{.xid = xid, .version = 7, .type = 9}.bytes());
       t.expect(answer.size() == 28 && word_at(answer, 0) == xid && word_at(answer, 1) == 7 &&
                    word_at(answer, 3) == 4 && word_at(answer, 4) == 1 && word_at(answer, 6) == 2,
                "ERR_VERS up to version 2");
       t.expect_alive();
     }},
    {"V2_005_a_message_too_short_for_the_prefix_is_dropped", Level::Decision, Needs::Nothing,
     "D2-05, as RFC 8166, 4.5.",
     [](Trial& t) {
       t.connect_v2();
       t.expect_alive();
       for (const std::size_t bytes : {4u, 12u, 16u, 19u}) {
         const Bytes call = null_v2(t.next_xid());
         t.send(std::span(call).first(bytes));
         t.expect_alive();
       }
       t.expect(t.overheard() == 0, "no answer to a fragment");
     }},
    {"V2_002_V2_020_V2_022_V2_024_V2_066_a_short_reply_is_one_MSG", Level::Must, Needs::Nothing,
     "Version 2, 6.3 and 6.4.1: prefix, chunk lists, then the RPC message with the same XID; RESPONSE alone "
     "is set.",
     [](Trial& t) {
       t.connect_v2();
       const std::uint32_t xid = t.next_xid();
       const Bytes reply = t.ask(null_v2(xid));
       t.expect(reply == words({xid, 2, word_at(reply, 2), 0, 1, 0, 0, 0, 0, xid, 1, 0, 0, 0, 0}),
                "the 60 bytes of a reply to NULL");
     }},
    {"V2_021_XIDs_that_differ_are_refused", Level::Decision, Needs::Nothing,
     "D2-49, as RFC 8166, 4.5.2: BAD_XDR.",
     [](Trial& t) {
       t.connect_v2();
       const std::uint32_t xid = t.next_xid();
       refused(t, xid, Header{.xid = xid}.with(null_payload(xid ^ 0xFF)), 2, "BAD_XDR");
       t.expect_alive();
     }},
    {"V2_023_V2_112_unknown_flags_are_refused", Level::Must, Needs::Nothing, "Version 2, 6.4.3: INVAL_FLAG.",
     [](Trial& t) {
       t.connect_v2();
       for (const std::uint32_t flags : {0x4u, 0x80000000u}) {
         const std::uint32_t xid = t.next_xid();
         refused(t, xid, Header{.xid = xid, .flags = flags}.with(null_payload(xid)), 4, "INVAL_FLAG");
       }
       t.expect_alive();
     }},
    {"V2_026_a_call_and_a_response_may_have_the_same_XID", Level::Must, Needs::File,
     "Version 2, 6.3.2.1: RESPONSE alone selects one of the two XID spaces.",
     [](Trial& t) {
       t.connect_v2();
       for (const bool response_first : {false, true}) {
         const Exposed memory = t.writable(kFileBytes);
         const std::uint32_t xid = t.next_xid();
         const Header call{.xid = xid, .writes = {{memory.segment}}};
         const Bytes response = Header{.xid = xid, .flags = v2::kResponse}.with(words({xid, 1, 0, 0, 0, 0}));
         if (response_first) t.send(response);
         t.send(call.with(read_payload(xid, t.target.file, 0, kFileBytes)));
         if (!response_first) t.send(response);
         expect_one_read(t, read_v2(t.answer()), memory);
       }
     }},
    {"V2_027_a_reply_without_RESPONSE_is_refused", Level::Decision, Needs::Nothing,
     "D2-11: flag and msg_type agree (6.3.2.1), else INVAL_FLAG.",
     [](Trial& t) {
       t.connect_v2();
       const std::uint32_t xid = t.next_xid();
       refused(t, xid, Header{.xid = xid}.with(words({xid, 1, 0, 0, 0, 0})), 4, "INVAL_FLAG");
       t.expect_alive();
     }},
    {"V2_027_a_call_with_RESPONSE_is_dropped", Level::Decision, Needs::Nothing, "D2-11.",
     [](Trial& t) {
       t.connect_v2();
       const std::uint32_t xid = t.next_xid();
       t.expect_silence(Header{.xid = xid, .flags = v2::kResponse}.with(null_payload(xid)));
     }},
    {"V2_028_V2_108_faulty_responses_are_never_answered", Level::Must, Needs::Nothing,
     "Version 2, 6.4.3 and RFC 8166, 4.2.4: no error about a response or an error.",
     [](Trial& t) {
       t.connect_v2();
       const std::uint32_t xid = t.next_xid();
       t.expect_silence(Header{.xid = xid, .flags = v2::kResponse}.with(words({xid, 1, 0, 0, 0, 0})));
       t.expect_silence(Header{.xid = xid, .type = 77, .flags = v2::kResponse}.bytes());
       t.expect_silence(Header{.xid = xid, .flags = v2::kResponse | 0x40}.with(words({xid, 1})));
       t.expect_silence(Header{.xid = xid, .credit = 0x400000, .type = 4, .flags = v2::kResponse}.then({2}));
       t.expect_silence(Header{.xid = xid, .credit = 0x400000, .type = 4, .flags = v2::kResponse}.then({77}));
     }},
    {"V2_029_V2_030_V2_111_V2_157_unknown_types_are_refused", Level::Must, Needs::Nothing,
     "Version 2, 6.2 and 6.4.3: INVAL_HTYPE; the types 2 and 3 of version 1 are such.",
     [](Trial& t) {
       t.connect_v2();
       for (const std::uint32_t type : {2u, 3u, 6u, 10u, 0xFFFFFFFFu}) {
         const std::uint32_t xid = t.next_xid();
         refused(t, xid, Header{.xid = xid, .type = type}.with(null_payload(xid)), 3, "INVAL_HTYPE");
       }
       t.expect_alive();
     }},
    {"V2_031_of_two_faults_the_earlier_check_decides", Level::Decision, Needs::Nothing,
     "Version, type, flags, lists, payload: one fault always gives one code.",
     [](Trial& t) {
       t.connect_v2();
       std::uint32_t xid = t.next_xid();
       refused(t, xid, Header{.xid = xid, .type = 9, .flags = 0x40}.bytes(), 3, "INVAL_HTYPE");
       xid = t.next_xid();
       refused(t, xid, Header{.xid = xid, .flags = 0x40}.then({0, 5, 0, 0}), 4, "INVAL_FLAG");
       xid = t.next_xid();
       refused(t, xid, Header{.xid = xid}.then({0, 5, 0, 0, 99}), 2, "BAD_XDR");
     }},
    {"V2_034_V2_039_V2_041_grants_without_payload_are_not_answered", Level::Must, Needs::Nothing,
     "Version 2, 4.3.1.2 and 6.4.2: NOMSG with empty lists carries credits and nothing else, whatever its "
     "XID.",
     [](Trial& t) {
       t.connect_v2();
       t.expect_silence(Header{.xid = 0, .credit = 0x00400001, .type = v2::kNoMsg}.bytes());
       t.expect_silence(Header{.xid = 99, .credit = 0x00400001, .type = v2::kNoMsg, .invalidate = 5}.bytes());
     }},
    {"V2_032_V2_035_V2_036_credits_come_back_without_end", Level::Must, Needs::Nothing,
     "Version 2, 4.3.1.1: each Send uses a credit; a peer always has one.",
     [](Trial& t) {
       t.connect_v2();
       for (int i = 0; i < 600; ++i) t.expect_alive();
     }},
    {"V2_044_V2_106_errors_grant_nothing", Level::Must, Needs::Nothing,
     "Version 2, 6.4.3: an ERROR has type 4, XID and version of the message, and no new credits.",
     [](Trial& t) {
       t.connect_v2();
       const std::uint32_t xid = t.next_xid();
       const Bytes answer = t.ask(Header{.xid = xid, .type = 9}.with(null_payload(xid)));
       t.expect(v2::is_error(answer, xid, 3) && (word_at(answer, 2) & 0xffff) == 0 &&
                    (word_at(answer, 2) >> 16) != 0,
                "a credit word with the limit alone");
       t.expect(answer.size() == 24, "24 bytes");
     }},
    {"V2_043_V2_148_who_sends_beyond_its_credits_is_let_go_alone", Level::Decision, Needs::Nothing,
     "D2-15: the connection is closed; other connections are not affected.",
     [](Trial& t) {
       t.connect_v2();
       for (std::uint32_t i = 0; i < 600 && !t.lost(); ++i) {
         const std::uint32_t xid = t.next_xid();
         t.send_beyond_credits(Header{.xid = xid, .credit = 0x00400000}.with(null_payload(xid)));
       }
       t.expect(t.ends(), "the connection ends");
       t.connect_v2();
       t.expect_alive();
     }},
    {"V2_053_V2_056_unknown_properties_are_skipped", Level::Must, Needs::Nothing,
     "Version 2, 5.1 and 6.4.4: no error is sent, and the next property is processed.",
     [](Trial& t) {
       t.connect_v2();
       t.expect_silence(
           Header{.xid = t.next_xid(), .type = v2::kConnProp}.then({2, 0x7FFF0001, 4, 7, 99, 0}));
     }},
    {"V2_052_V2_060_properties_without_data_mean_the_default", Level::Must, Needs::Nothing,
     "Version 2, 5.1: a property may have a length of zero; properties need no answer.",
     [](Trial& t) {
       t.connect_v2();
       t.expect_silence(Header{.xid = t.next_xid(), .type = v2::kConnProp}.then({2, 1, 0, 2, 0}));
     }},
    {"V2_054_V2_110_a_property_that_is_too_short_is_BAD_XDR", Level::Must, Needs::Nothing,
     "Version 2, 5.1: data that does not fit the type of a known property.",
     [](Trial& t) {
       t.connect_v2();
       const std::uint32_t xid = t.next_xid();
       refused(t, xid, Header{.xid = xid, .type = v2::kConnProp}.then({1, 1, 2, 0x00010000}), 2, "BAD_XDR");
       t.expect_alive();
     }},
    {"V2_055_a_property_beyond_the_message_is_BAD_XDR", Level::Must, Needs::Nothing,
     "Version 2, 5.1: BAD_XDR for a length past the end, even of unknown properties, and for an impossible "
     "count.",
     [](Trial& t) {
       t.connect_v2();
       std::uint32_t xid = t.next_xid();
       refused(t, xid, Header{.xid = xid, .type = v2::kConnProp}.then({1, 0x7FFF0001, 400, 7}), 2, "BAD_XDR");
       xid = t.next_xid();
       refused(t, xid, Header{.xid = xid, .type = v2::kConnProp}.then({0xFFFFFFFF}), 2, "BAD_XDR");
       t.expect_alive();
     }},
    {"V2_110_headers_that_cannot_be_parsed_are_BAD_XDR", Level::Must, Needs::Nothing,
     "Version 2, 6.4.3: ERROR without body, 24 octets.",
     [](Trial& t) {
       t.connect_v2();
       for (int form = 0; form < 4; ++form) {
         const std::uint32_t xid = t.next_xid();
         const Header header{.xid = xid};
         const Bytes bad[] = {header.then({0, 2, 0, 0, 1}),
                              header.then({0, 0, 1, 0x10000000, 1, 1, 1, 1, 0, 0}),
                              header.then({0, 0, 0, 3, 1, 1, 1, 1}), header.then({0, 1, 0, 7})};
         refused(t, xid, bad[form], 2, "BAD_XDR");
       }
       t.expect_alive();
     }},
    {"V2_123_arguments_that_do_not_parse_get_GARBAGE_ARGS", Level::Decision, Needs::Root,
     "D2-49, as RFC 8166, 4.5.2: an RPC reply, not an ERROR.",
     [](Trial& t) {
       t.connect_v2();
       const std::uint32_t xid = t.next_xid();
       Bytes payload = getattr_payload(xid, t.target.root);
       payload.resize(68 + 4);
       t.expect(accept_stat_of(read_v2(t.ask(Header{.xid = xid}.with(payload))).payload) == 4,
                "GARBAGE_ARGS");
     }},
    {"V2_154_two_programs_share_a_connection", Level::Must, Needs::Root,
     "Version 2, A.3: all programs use the same parameters.",
     [](Trial& t) {
       t.connect_v2();
       for (int i = 0; i < 5; ++i) {
         const std::uint32_t xid = t.next_xid();
         accept_stat_of(read_v2(t.ask(Header{.xid = xid}.with(rpc_call(xid, 100227, 3, 0)))).payload);
         const std::uint32_t other = t.next_xid();
         const Bytes answer = t.ask(Header{.xid = other}.with(getattr_payload(other, t.target.root)));
         t.expect(nfs_status(read_v2(answer).payload) == 0, "GETATTR succeeds between calls of NFSACL");
       }
     }},
    {"V2_141_random_messages_neither_stop_nor_confuse_the_server", Level::Must, Needs::Nothing,
     "Version 2, 10.1: hostile messages do not compromise the host.",
     [](Trial& t) {
       t.connect_v2();
       RandomNumbers random;
       for (int i = 0; i < 300; ++i) {
         Bytes message = random.message(4);
         if (message.size() >= 20) {
           xdr::store_u32(message.data() + 4, 2);
           xdr::store_u32(message.data() + 8, 0x00400001);
           xdr::store_u32(message.data() + 12, static_cast<std::uint32_t>(random.next() % 6));
           xdr::store_u32(message.data() + 16, 0);
         }
         if (t.credits_v2() == 0) t.overheard();
         if (t.lost() || t.credits_v2() == 0) t.connect_v2();
         t.send(message);
       }
       t.overheard();
       t.connect_v2();
       t.expect_alive();
     }},
};

}  // namespace

std::span<const Test> tests_of_version_2() {
  return kV2MessageTests;
}

}  // namespace sluice::conformance
