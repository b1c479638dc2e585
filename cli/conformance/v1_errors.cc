// SPDX-License-Identifier: Apache-2.0
//
// Version 1: what a server refuses, and how.
#include "cli/conformance/tests.h"

namespace sluice::conformance {
namespace {

bool is_err_vers(const Bytes& answer, std::uint32_t xid, std::uint32_t version) {
  return answer.size() == 28 && word_at(answer, 0) == xid && word_at(answer, 1) == version &&
         word_at(answer, 3) == 4 && word_at(answer, 4) == 1 && word_at(answer, 5) <= 1 &&
         word_at(answer, 6) >= 1;
}

/// ERR_CHUNK, and the server goes on.
void refused(Trial& t, std::uint32_t xid, const Bytes& message) {
  t.expect(is_err_chunk(t.ask(message), xid), "ERR_CHUNK, 20 bytes, with the XID of the header");
  t.expect_alive();
}
/// The header, with the payload of a NULL call.
void refused(Trial& t, const RawCall& call) {
  refused(t, call.xid, call.with(null_payload(call.xid)));
}

const Test kTests[] = {
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
     "RFC 8166, 4.5.2: an rdma_proc that is not known is answered with ERR_CHUNK.",
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
     "RFC 8166, 4.5.2: nothing says where the RPC message is.",
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
     "RFC 8166, 4.5.2; counts are checked against the octets that are left.",
     [](Trial& t) {
       t.connect();
       const std::uint32_t xid = t.next_xid();
       refused(t, xid, words({xid, 1, 32, 0, 0, 1, 0xFFFFFFFF, 0xB11, 0x400}));
       refused(t, xid, words({xid, 1, 32, 0, 0, 1, 0x10000000, 0xB11, 0x400, 0, 0}));
     }},
    {"V1_033_RDMA_MSG_without_payload_is_refused", Level::Should, Needs::Nothing,
     "RFC 8166, 4.5.2 asks for ERR_CHUNK where the XID is known; the payload stream is not there.",
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
     "RFC 8166, 4.5.3: ERR_CHUNK before anything is written; never past the chunk.",
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
     "RFC 8166, 4.5.4: a remote access error ends the connection; the client connects again.",
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
  return kTests;
}

}  // namespace sluice::conformance
