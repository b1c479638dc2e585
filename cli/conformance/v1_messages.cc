// SPDX-License-Identifier: Apache-2.0
//
// Version 1: framing, messages without a reply, and messages that a server refuses.
#include <cstdint>
#include <string>

#include "cli/conformance/tests.h"

namespace sluice::conformance {
namespace {

const Test kMessageTests[] = {
    {"V1_001_V1_002_V1_004_V1_005_V1_006_V1_010_V1_065_a_short_reply_is_one_RDMA_MSG_without_chunks",
     Level::Must, Needs::Nothing,
     "RFC 8166, 4.1 and 4.2: four words, three chunk fields, then the RPC message with the same XID, in one "
     "Send.",
     [](Trial& t) {
       t.connect();
       const std::uint32_t xid = t.next_xid();
       const Bytes reply = t.ask(null_v1(xid));
       t.expect(reply == words({xid, 1, word_at(reply, 2), 0, 0, 0, 0, xid, 1, 0, 0, 0, 0}),
                "the 52 bytes of a reply to NULL");
     }},
    {"V1_019_messages_have_the_forms_of_version_1_and_no_other", Level::Must, Needs::File,
     "RFC 8166, 4.2 and 7.1: another form of a message is another version of the protocol.",
     [](Trial& t) {
       t.connect();
       const Exposed memory = t.writable(2048);
       RawCall call{.xid = t.next_xid(), .writes = {{memory.segment}}};
       const RawReply reduced = read_v1(t.ask(call.with(read_payload(call.xid, t.target.file, 0, 1001))));
       t.expect(reduced.proc == 0 && word_at(reduced.payload, 0) == call.xid,
                "an RDMA_MSG whose payload follows the chunk fields");
       call = {.xid = t.next_xid(), .reply = {{memory.segment}}};
       const RawReply longer = read_v1(t.ask(call.with(read_payload(call.xid, t.target.file, 0, 1501))));
       t.expect(longer.proc == 1 && longer.payload.empty(), "an RDMA_NOMSG that ends with the chunk fields");
       call = {.xid = t.next_xid(), .proc = 9};
       t.expect(is_err_chunk(t.ask(call.with(null_payload(call.xid))), call.xid), "ERR_CHUNK of 20 bytes");
       call = {.xid = t.next_xid(), .version = 9};
       const Bytes error = t.ask(call.with(null_payload(call.xid)));
       t.expect(error.size() == 28 && word_at(error, 4) == 1, "ERR_VERS of 28 bytes");
     }},
    {"V1_020_a_fragment_is_dropped", Level::Must, Needs::Nothing,
     "RFC 8166, 4.5: a message shorter than the shortest header is silently discarded.",
     [](Trial& t) {
       t.connect();
       t.expect_alive();
       t.expect_silence(words({t.next_xid(), 1, 32}));
     }},
    {"V1_020_an_RDMA_MSG_that_ends_before_its_chunk_fields_is_dropped", Level::Must, Needs::Nothing,
     "RFC 8166, 4.5: fewer than 28 octets are silently discarded.",
     [](Trial& t) {
       t.connect();
       t.expect_alive();
       t.expect_silence(words({t.next_xid(), 1, 32, 0, 0, 0}));
     }},
    {"V1_020_octets_behind_an_RDMA_NOMSG_are_ignored", Level::Decision, Needs::Nothing,
     "A-21: the documents do not mention them.",
     [](Trial& t) {
       t.connect();
       const std::uint32_t xid = t.next_xid();
       const Exposed memory = t.readable(40, 0);
       const Bytes payload = null_payload(xid);
       place(memory, payload);
       const RawCall call{.xid = xid, .proc = 1, .reads = {{0, memory.segment}}};
       t.expect(accept_stat_of(read_v1(t.ask(call.with(words({7, 7})))).payload) == 0, "the call succeeds");
     }},
    {"V1_028_errors_are_never_answered", Level::Must, Needs::Nothing,
     "RFC 8166, 4.5: an RDMA_ERROR, whole or not, is discarded by a responder.",
     [](Trial& t) {
       t.connect();
       t.expect_alive();
       const std::uint32_t xid = t.next_xid();
       t.expect_silence(words({xid, 1, 16, 4}));
       t.expect_silence(words({xid, 1, 16, 4, 7}));
       t.expect_silence(words({xid, 1, 16, 4, 1, 1}));
       t.expect_silence(words({xid, 1, 16, 4, 2}));
     }},
    {"V1_028_errors_of_another_version_are_never_answered", Level::Should, Needs::Nothing,
     "RFC 8166, 4.5: an RDMA_ERROR is not answered; 4.5.1, taken by the word, answers any other version.",
     [](Trial& t) {
       t.connect();
       t.expect_alive();
       t.expect_silence(words({t.next_xid(), 7, 16, 4, 2}));
     }},
    {"V1_174_an_error_with_an_unknown_XID_changes_nothing", Level::Must, Needs::Nothing,
     "RFC 8167, 5.3: its rdma_credit is ignored.",
     [](Trial& t) {
       t.connect();
       t.expect_alive();
       t.expect_silence(words({t.next_xid(), 1, 1000, 4, 2}));
       t.expect_silence(words({t.next_xid(), 1, 0, 4, 2}));
     }},
    {"V1_131_no_reply_is_an_RDMA_MSGP", Level::Must, Needs::File,
     "RFC 8166, 4.6.1: RDMA_MSGP is not sent to a requester that does not send it.",
     [](Trial& t) {
       t.connect();
       for (const std::uint32_t threshold : {4u, 64u, 1024u}) {
         const std::uint32_t xid = t.next_xid();
         Bytes message = words({xid, 1, 32, 2, 64, threshold, 0, 0, 0});
         append(message, read_payload(xid, t.target.file, 0, 600));
         t.expect(word_at(t.ask(message), 3) != 2, "an answer that is no RDMA_MSGP");
         const RawCall call{.xid = t.next_xid()};
         t.expect(read_v1(t.ask(call.with(read_payload(call.xid, t.target.file, 0, 600)))).proc == 0,
                  "600 bytes in an RDMA_MSG");
       }
     }},
    {"V1_132_RDMA_MSGP_is_refused", Level::Should, Needs::Nothing,
     "RFC 8166, 4.6.1: a responder SHOULD answer RDMA_MSGP with ERR_CHUNK.",
     [](Trial& t) {
       t.connect();
       const std::uint32_t xid = t.next_xid();
       Bytes message = words({xid, 1, 32, 2, 64, 64, 0, 0, 0});
       append(message, null_payload(xid));
       t.expect(is_err_chunk(t.ask(message), xid), "ERR_CHUNK");
       t.expect_alive();
     }},
    {"V1_134_no_RDMA_DONE_follows_what_was_read", Level::Must, Needs::File,
     "RFC 8166, 4.6.2: RDMA_DONE is not sent; the reply alone indicates that the chunks were read.",
     [](Trial& t) {
       t.connect();
       for (const std::uint32_t bytes : {64u, kFileBytes}) {
         RawCall call{.xid = t.next_xid()};
         const Bytes payload = write_payload(call.xid, t.target.file, 0, bytes);
         call.reads = {{position_of(payload), t.readable(bytes, kFileSeed).segment}};
         t.expect(nfs_status(read_v1(t.ask(call.with(payload))).payload) == 0, "the WRITE succeeds");
         t.expect(t.overheard() == 0, "nothing but its reply");
       }
     }},
    {"V1_135_RDMA_DONE_is_dropped", Level::Must, Needs::Nothing,
     "RFC 8166, 4.6.2: RDMA_DONE is silently discarded.",
     [](Trial& t) {
       t.connect();
       t.expect_alive();
       for (int i = 0; i < 20; ++i) t.expect_silence(words({t.next_xid(), 1, 32, 3}));
     }},
    {"V1_137_a_program_that_is_not_served_at_connect_time_costs_nothing", Level::Must, Needs::Nothing,
     "RFC 5531, 9: PROG_UNAVAIL. RFC 8166 has no Connection Configuration Protocol.",
     [](Trial& t) {
       t.connect();
       const std::uint32_t xid = t.next_xid();
       const Bytes reply = t.ask(RawCall{.xid = xid}.with(rpc_call(xid, 100417, 1, 0)));
       t.expect(accept_stat_of(read_v1(reply).payload) == 1, "PROG_UNAVAIL");
       t.expect_alive();
     }},
    {"V1_150_replies_do_not_invalidate", Level::Must, Needs::File,
     "RFC 8797, 4: remote invalidation is used only with a requester that announced it.",
     [](Trial& t) {
       t.connect();
       const std::uint32_t xid = t.next_xid();
       const Exposed memory = t.writable(512);
       read_v1(t.ask(RawCall{.xid = xid, .writes = {{memory.segment}}}.with(
           read_payload(xid, t.target.file, 0, 512))));  // checked for each message
       t.expect_alive();
     }},
    {"V1_157_a_reply_is_no_call", Level::Should, Needs::Nothing,
     "RFC 8167, 4.3: msg_type indicates the direction. A reply that matches no call is dropped.",
     [](Trial& t) {
       t.connect();
       t.expect_alive();
       const std::uint32_t xid = t.next_xid();
       t.expect_silence(RawCall{.xid = xid}.with(words({xid, 1, 0, 0, 0, 0})));
       t.expect(accept_stat_of(read_v1(t.ask(null_v1(xid))).payload) == 0, "a call with its XID succeeds");
     }},
    {"V1_158_a_call_and_a_reply_may_have_the_same_XID", Level::Should, Needs::File,
     "RFC 8167, 3: the XIDs of the two directions are independent.",
     [](Trial& t) {
       t.connect();
       t.expect_alive();
       for (const bool reply_first : {false, true}) {
         const Exposed memory = t.writable(kFileBytes);
         const RawCall call{.xid = t.next_xid(), .writes = {{memory.segment}}};
         const Bytes reply = RawCall{.xid = call.xid}.with(words({call.xid, 1, 0, 0, 0, 0}));
         if (reply_first) t.send(reply);
         t.send(call.with(read_payload(call.xid, t.target.file, 0, kFileBytes)));
         if (!reply_first) t.send(reply);
         expect_one_read(t, read_v1(t.answer()), memory);
       }
     }},
    {"V1_170_a_server_calls_nobody_who_has_not_asked_for_it", Level::Must, Needs::Nothing,
     "RFC 8167, 5.5: no call in the reverse direction before the client's upper layer is ready.",
     [](Trial& t) {
       t.connect();
       t.expect(t.overheard() == 0, "no message before the first call");
       t.expect_alive();
       t.expect(t.overheard() == 0, "no message after the last reply");
     }},
    {"V1_146_random_messages_neither_stop_nor_confuse_the_server", Level::Must, Needs::Nothing,
     "RFC 8166, 8.1: header fields are hostile input.",
     [](Trial& t) {
       t.connect();
       RandomNumbers random;
       for (int i = 0; i < 300; ++i) {
         Bytes message = random.message(4);
         if (message.size() >= 16 && i % 2 == 0) {
           xdr::store_u32(message.data() + 4, 1);
           xdr::store_u32(message.data() + 12, static_cast<std::uint32_t>(random.next() % 5));
         }
         t.send(message);
         t.wait(1'000'000);
         if (t.lost()) t.connect();
       }
       t.overheard();
       t.connect();
       t.expect_alive();
     }},
};

}  // namespace

std::span<const Test> tests_of_messages() {
  return kMessageTests;
}

// --- Messages that a server refuses

namespace {

bool is_err_vers(const Bytes& answer, std::uint32_t xid, std::uint32_t version) {
  return answer.size() == 28 && word_at(answer, 0) == xid && word_at(answer, 1) == version &&
         word_at(answer, 3) == 4 && word_at(answer, 4) == 1 && word_at(answer, 5) <= 1 &&
         word_at(answer, 6) >= 1;
}

/// Checks that the server answers with ERR_CHUNK and continues.
void refused(Trial& t, std::uint32_t xid, const Bytes& message) {
  t.expect(is_err_chunk(t.ask(message), xid), "ERR_CHUNK, 20 bytes, with the XID of the header");
  t.expect_alive();
}
/// Checks that a call with this header and the payload of a NULL call is refused.
void refused(Trial& t, const RawCall& call) {
  refused(t, call.xid, call.with(null_payload(call.xid)));
}

const Test kErrorTests[] = {
    {"V1_008_V1_022_V1_024_V1_018_foreign_versions_get_ERR_VERS", Level::Must, Needs::Nothing,
     "RFC 8166, 4.5.1: ERR_VERS with the XID and version of the message, and the range that is supported.",
     [](Trial& t) {
       t.connect();
       for (const std::uint32_t version : {0u, 3u, 0xFFFFFFFFu}) {
         const RawCall call{.xid = t.next_xid(), .version = version};
         t.expect(is_err_vers(t.ask(call.with(null_payload(call.xid))), call.xid, version),
                  "ERR_VERS, 28 bytes, for version " + std::to_string(version));
       }
       t.expect_alive();
     }},
    {"V1_023_the_version_is_judged_before_all_else", Level::Must, Needs::Nothing,
     "RFC 8166, 4.2.1 and 7.1: only the first four words are the same in all versions.",
     [](Trial& t) {
       t.connect();
       const std::uint32_t xid = t.next_xid();
       Bytes message = words({xid, 9, 32, 0xFFFFFFFF});
       for (std::uint32_t i = 1; i < 20; ++i) append(message, words({0xA5A5A5A5u * i}));
       t.expect(is_err_vers(t.ask(message), xid, 9), "ERR_VERS, never ERR_CHUNK");
       t.expect_alive();
     }},
    {"V1_031_V1_026_undefined_message_types_are_refused", Level::Must, Needs::Nothing,
     "RFC 8166, 4.5.2: an unknown rdma_proc is answered with ERR_CHUNK.",
     [](Trial& t) {
       t.connect();
       for (const std::uint32_t proc : {5u, 9u, 0xFFFFFFFFu}) refused(t, {.xid = t.next_xid(), .proc = proc});
     }},
    {"V1_026_a_call_whose_header_is_wrong_is_not_executed", Level::Must, Needs::File,
     "RFC 8166, 4.5: header and chunks are checked before the RPC consumer sees anything.",
     [](Trial& t) {
       t.connect();
       const RawCall call{.xid = t.next_xid(), .proc = 9};
       Bytes payload = write_payload(call.xid, t.target.file, 0, 8);
       append(payload, words({0, 0}));
       t.expect(is_err_chunk(t.ask(call.with(payload)), call.xid), "ERR_CHUNK");
       t.expect(has_pattern(file_content(t, 0, 8), kFileSeed), "the file is as it was");
     }},
    {"V1_032_RDMA_NOMSG_without_chunks_is_refused", Level::Must, Needs::Nothing,
     "RFC 8166, 4.5.2: the header does not locate the RPC message.",
     [](Trial& t) {
       t.connect();
       const RawCall call{.xid = t.next_xid(), .proc = 1};
       refused(t, call.xid, call.header());
     }},
    {"V1_032_RDMA_NOMSG_with_a_Reply_chunk_alone_is_refused", Level::Must, Needs::Nothing,
     "RFC 8166, 3.5.3 and 4.5.2: a long call has a Position Zero Read chunk.",
     [](Trial& t) {
       t.connect();
       const Exposed memory = t.writable(4096);
       const RawCall call{.xid = t.next_xid(), .proc = 1, .reply = {{memory.segment}}};
       refused(t, call.xid, call.header());
     }},
    {"V1_032_RDMA_NOMSG_with_a_chunk_elsewhere_alone_is_refused", Level::Must, Needs::Nothing,
     "RFC 8166, 3.5.3 and 4.5.2: a long call has a Position Zero Read chunk.",
     [](Trial& t) {
       t.connect();
       const RawCall call{.xid = t.next_xid(), .proc = 1, .reads = {{8, t.readable(64, 1).segment}}};
       refused(t, call.xid, call.header());
     }},
    {"V1_013_V1_033_a_discriminator_of_2_is_refused", Level::Must, Needs::Nothing,
     "RFC 4506, 4.4 and RFC 8166, 4.5.2: the word before an entry is 0 or 1.",
     [](Trial& t) {
       t.connect();
       const std::uint32_t xid = t.next_xid();
       Bytes message = words({xid, 1, 32, 0, 2, 40, 0xA01, 4, 0x7F00, 0x1000, 0, 0, 0});
       append(message, null_payload(xid));
       refused(t, xid, message);
     }},
    {"V1_014_V1_033_a_Read_list_that_is_cut_off_is_refused", Level::Must, Needs::Nothing,
     "RFC 8166, 4.5.2: chunk lists that cannot be decoded are answered with ERR_CHUNK.",
     [](Trial& t) {
       t.connect();
       const std::uint32_t xid = t.next_xid();
       refused(t, xid, words({xid, 1, 32, 1, 1, 0, 0xD01}));
     }},
    {"V1_015_V1_033_a_Write_list_that_does_not_end_is_refused", Level::Must, Needs::Nothing,
     "RFC 8166, 4.5.2: chunk lists that cannot be decoded are answered with ERR_CHUNK.",
     [](Trial& t) {
       t.connect();
       const std::uint32_t xid = t.next_xid();
       refused(t, xid, words({xid, 1, 32, 0, 0, 1, 1, 0xB11, 0x400, 0x5600, 0x10000}));
     }},
    {"V1_016_V1_033_a_Reply_chunk_that_is_cut_off_is_refused", Level::Must, Needs::Nothing,
     "RFC 8166, 4.5.2: chunk lists that cannot be decoded are answered with ERR_CHUNK.",
     [](Trial& t) {
       t.connect();
       const std::uint32_t xid = t.next_xid();
       refused(t, xid, words({xid, 1, 32, 0, 0, 0, 1, 2, 0xC01, 0x2000, 0x5600, 0x10000}));
     }},
    {"V1_021_V1_033_a_count_of_segments_beyond_the_message_is_refused", Level::Must, Needs::Nothing,
     "RFC 8166, 4.5.2: counts are checked against the remaining octets.",
     [](Trial& t) {
       t.connect();
       const std::uint32_t xid = t.next_xid();
       refused(t, xid, words({xid, 1, 32, 0, 0, 1, 0xFFFFFFFF, 0xB11, 0x400}));
       refused(t, xid, words({xid, 1, 32, 0, 0, 1, 0x10000000, 0xB11, 0x400, 0, 0}));
     }},
    {"V1_033_RDMA_MSG_without_payload_is_refused", Level::Should, Needs::Nothing,
     "RFC 8166, 4.5.2 requires ERR_CHUNK if the XID is known; the payload stream is missing.",
     [](Trial& t) {
       t.connect();
       const RawCall call{.xid = t.next_xid()};
       refused(t, call.xid, call.header());
     }},
    {"V1_034_V1_024_XIDs_that_differ_are_refused", Level::Must, Needs::Nothing,
     "RFC 8166, 4.5.2: an XID in the payload that is not rdma_xid is answered with ERR_CHUNK.",
     [](Trial& t) {
       t.connect();
       const RawCall call{.xid = t.next_xid()};
       refused(t, call.xid, call.with(null_payload(call.xid ^ 0xFF)));
     }},
    {"V1_035_arguments_that_do_not_parse_get_GARBAGE_ARGS", Level::Should, Needs::Root,
     "RFC 8166, 4.5.2: with a valid header the answer is an RPC reply with GARBAGE_ARGS.",
     [](Trial& t) {
       t.connect();
       const RawCall call{.xid = t.next_xid()};
       Bytes payload = getattr_payload(call.xid, t.target.root);
       payload.resize(68 + 4);  // the length of a handle, and no handle
       const RawReply reply = read_v1(t.ask(call.with(payload)));
       t.expect(reply.proc == 0 && accept_stat_of(reply.payload) == 4, "GARBAGE_ARGS in an RDMA_MSG");
       t.expect_alive();
     }},
    {"V1_037_a_reply_that_does_not_fit_its_Reply_chunk_is_refused", Level::Must, Needs::File,
     "RFC 8166, 4.5.3: ERR_CHUNK is sent before any data is written; no data is written past the chunk.",
     [](Trial& t) {
       t.connect();
       const Exposed memory = t.writable(128);
       const RawCall call{.xid = t.next_xid(), .reply = {{part(memory.segment, 0, 64)}}};
       t.expect(is_err_chunk(t.ask(call.with(read_payload(call.xid, t.target.file, 0, 2000))), call.xid),
                "ERR_CHUNK");
       for (const std::byte b : memory.bytes.subspan(64))
         t.expect(b == std::byte{0xA5}, "nothing behind the chunk");
       t.expect_alive();
     }},
    {"V1_038_a_reply_without_room_is_refused", Level::Must, Needs::File,
     "RFC 8166, 4.5.3: a reply beyond the threshold without a Reply chunk is ERR_CHUNK.",
     [](Trial& t) {
       t.connect();
       const RawCall call{.xid = t.next_xid()};
       t.expect(is_err_chunk(t.ask(call.with(read_payload(call.xid, t.target.file, 0, 3000))), call.xid),
                "ERR_CHUNK");
       t.expect_alive();
     }},
    {"V1_039_V1_154_a_handle_that_is_wrong_ends_its_connection_alone", Level::Must, Needs::File,
     "RFC 8166, 4.5.4: a remote access error ends the connection; the client reconnects.",
     [](Trial& t) {
       t.connect();
       const Exposed memory = t.writable(4096);
       rpcrdma::Segment wrong = memory.segment;
       wrong.handle = static_cast<rdma::Rkey>(static_cast<std::uint32_t>(wrong.handle) ^ 0x5A5A5A00u);
       const RawCall call{.xid = t.next_xid(), .writes = {{wrong}}};
       t.send(call.with(read_payload(call.xid, t.target.file, 0, 4096)));
       t.expect(t.ends(), "the connection ends");
       t.connect();
       t.expect_alive();
     }},
};

}  // namespace

std::span<const Test> tests_of_errors() {
  return kErrorTests;
}

}  // namespace sluice::conformance
