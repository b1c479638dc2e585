// SPDX-License-Identifier: Apache-2.0
//
// Version 1: credits, thresholds and connections of a server.
#include <set>

#include "cli/conformance/tests.h"

namespace sluice::conformance {
namespace {

constexpr std::uint32_t kMostAtOnce = 128;  // less than our own Receives

std::uint32_t grant_of(Trial& t) {
  return word_at(t.ask(null_v1(t.next_xid())), 2);
}

/// So many calls at once; each has to be answered once.
void all_answered(Trial& t, std::uint32_t calls) {
  std::set<std::uint32_t> open;
  for (std::uint32_t i = 0; i < calls; ++i) {
    open.insert(t.next_xid());
    t.send(RawCall{.xid = *open.rbegin(), .credits = kMostAtOnce}.with(null_payload(*open.rbegin())));
  }
  for (std::uint32_t i = 0; i < calls; ++i)
    t.expect(open.erase(word_at(t.answer(), 0)) == 1, "one reply to each of the calls");
}

const Test kTests[] = {
    {"V1_030_errors_grant_credits", Level::Must, Needs::Nothing,
     "RFC 8166, 4.2.3: rdma_credit is never zero, in an error neither; the request that failed gives its "
     "credit back.",
     [](Trial& t) {
       t.connect();
       const RawCall call{.xid = t.next_xid(), .proc = 9};
       const Bytes answer = t.ask(call.with(null_payload(call.xid)));
       t.expect(word_at(answer, 3) == 4 && word_at(answer, 2) >= 1,
                "an RDMA_ERROR that grants at least one credit");
       t.expect_alive();
     }},
    {"V1_041_V1_051_the_grant_is_a_limit_and_stays", Level::Should, Needs::Nothing,
     "RFC 8166, 3.3.1: the responder grants as many requests as it can handle, not what is free at the "
     "moment.",
     [](Trial& t) {
       t.connect();
       grant_of(t);
       const std::uint32_t grant = grant_of(t);
       for (int i = 0; i < 100; ++i) t.expect(grant_of(t) == grant, "the same grant in each reply");
     }},
    {"V1_042_a_request_for_no_credits_gets_one", Level::Must, Needs::Nothing,
     "RFC 8166, 3.3.1: a grant is at least one, else nothing could be sent again.",
     [](Trial& t) {
       t.connect();
       const RawCall call{.xid = t.next_xid(), .credits = 0};
       t.expect(word_at(t.ask(call.with(null_payload(call.xid))), 2) >= 1, "a grant of at least one");
       t.expect_alive();
     }},
    {"V1_047_the_first_call_finds_a_Receive", Level::Must, Needs::Nothing,
     "RFC 8166, 3.3.3: Receives are posted before the connection is there.",
     [](Trial& t) {
       for (int i = 0; i < 5; ++i) {
         t.connect();
         t.expect_alive();
       }
     }},
    {"V1_048_the_request_may_change_with_each_call", Level::Must, Needs::Nothing,
     "RFC 8166, 3.3.1: both values may go up and down at any message.",
     [](Trial& t) {
       t.connect();
       for (const std::uint32_t credits : {1u, 128u, 2u, 0xFFFFFFFFu, 1u, 64u}) {
         const RawCall call{.xid = t.next_xid(), .credits = credits};
         const RawReply reply = read_v1(t.ask(call.with(null_payload(call.xid))));
         t.expect(accept_stat_of(reply.payload) == 0, "a NULL call succeeds");
         t.expect(reply.credit >= 1, "a grant of at least one");
         if (credits > 1) all_answered(t, std::min({reply.credit, credits, kMostAtOnce}));
       }
     }},
    {"V1_052_all_that_is_granted_may_be_sent_at_once", Level::Must, Needs::Nothing,
     "RFC 8166, 3.3.1: each granted request has a Receive.",
     [](Trial& t) {
       t.connect();
       const std::uint32_t grant = std::min(grant_of(t), kMostAtOnce);
       for (int i = 0; i < 5; ++i) all_answered(t, grant);
     }},
    {"V1_054_requests_beyond_the_grant_hurt_nobody", Level::Must, Needs::Nothing,
     "RFC 8166, 3.3.1: the responder may handle them, or end the connection.",
     [](Trial& t) {
       t.connect();
       const std::uint32_t grant = grant_of(t);
       if (grant + 4 > kMostAtOnce)
         t.skip("The server grants " + std::to_string(grant) + " credits, more than are tried.");
       for (std::uint32_t i = 0; i < grant + 4; ++i) t.send(null_v1(t.next_xid()));
       std::uint32_t answers = 0;
       try {
         for (; answers < grant + 4; ++answers) t.answer();
       } catch (const Failure&) {
         if (!t.lost()) throw;
       }
       t.connect();
       t.expect_alive();
     }},
    {"V1_058_a_stray_RDMA_DONE_takes_no_Receive_of_the_calls", Level::Should, Needs::Nothing,
     "RFC 8166, 4.6.2; an old requester's RDMA_DONE comes without a credit.",
     [](Trial& t) {
       t.connect();
       const std::uint32_t grant = std::min(grant_of(t), kMostAtOnce);
       t.send(words({t.next_xid(), 1, 32, 3}));
       all_answered(t, grant);
     }},
    {"V1_059_V1_156_a_new_connection_begins_anew", Level::Must, Needs::Nothing,
     "RFC 8166, 3.3.3: Receives and credits are those of a connection.",
     [](Trial& t) {
       for (int i = 0; i < 3; ++i) {
         t.connect();
         const std::uint32_t grant = std::min(grant_of(t), kMostAtOnce);
         for (std::uint32_t n = 0; n < grant; ++n) t.send(null_v1(t.next_xid()));  // and away
       }
       t.connect();
       t.expect_alive();
     }},
    {"V1_057_calls_with_many_segments_come_all_at_once", Level::Must, Needs::File,
     "RFC 8166, 3.3.1: how many RDMA Reads may be in progress is not conveyed; a responder minds it itself.",
     [](Trial& t) {
       constexpr std::uint32_t kSegments = 8, kSegmentBytes = 512;
       t.connect();
       const std::uint32_t calls = std::min(grant_of(t), kMostAtOnce);
       const Exposed memory = t.readable(std::size_t{kSegments} * kSegmentBytes, kFileSeed);
       for (std::uint32_t i = 0; i < calls; ++i) {
         RawCall call{.xid = t.next_xid()};
         const Bytes payload = write_payload(call.xid, t.target.file, 0, kSegments * kSegmentBytes);
         for (std::uint32_t n = 0; n < kSegments; ++n)
           call.reads.push_back(
               {position_of(payload), part(memory.segment, n * kSegmentBytes, kSegmentBytes)});
         t.send(call.with(payload));
       }
       for (std::uint32_t i = 0; i < calls; ++i)
         t.expect(nfs_status(read_v1(t.answer()).payload) == 0, "each WRITE succeeds");
       t.expect(has_pattern(file_content(t, 0, kSegments * kSegmentBytes), kFileSeed),
                "the file holds what is in the chunk");
     }},
    {"V1_060_each_request_gives_its_credit_back", Level::Must, Needs::Nothing,
     "RFC 8166, 4.5: requests that cannot be processed are answered, one by one, without end.",
     [](Trial& t) {
       t.connect();
       t.expect_alive();
       for (std::uint32_t i = 0; i < 300; ++i) {
         const RawCall call{.xid = t.next_xid(), .proc = i % 2 == 0 ? 9u : 1u};
         t.expect(is_err_chunk(t.ask(call.proc == 1 ? call.header() : call.with(null_payload(call.xid))),
                               call.xid),
                  "ERR_CHUNK for each");
       }
       t.expect_alive();
     }},
    {"V1_061_calls_of_1024_bytes_are_received", Level::Must, Needs::File,
     "RFC 8166, 3.3.2: every receiver takes 1024 octets.",
     [](Trial& t) {
       t.connect();
       const RawCall call{.xid = t.next_xid()};
       const std::size_t before = 28 + write_payload(call.xid, t.target.file, 0, 0).size();
       const auto count = static_cast<std::uint32_t>(1024 - before);
       Bytes payload = write_payload(call.xid, t.target.file, 0, count);
       for (std::uint32_t i = 0; i < count; ++i) payload.push_back(pattern_byte(kFileSeed, i));
       t.expect(nfs_status(read_v1(t.ask(call.with(payload))).payload) == 0, "the WRITE succeeds");
       t.expect(has_pattern(file_content(t, 0, count), kFileSeed), "the file holds what was sent");
     }},
    {"V1_062_V1_064_V1_009_a_reply_is_as_long_as_the_threshold_and_no_longer", Level::Must, Needs::File,
     "RFC 8166, 3.3.2: 1024 octets, header and payload together, unless something else was agreed.",
     [](Trial& t) {
       t.connect();
       RawCall call{.xid = t.next_xid()};
       const std::size_t around = t.ask(call.with(read_payload(call.xid, t.target.file, 0, 4))).size() - 4;
       const auto fits = static_cast<std::uint32_t>(1024 - around);
       call.xid = t.next_xid();
       const ReadResult result =
           read_result(read_v1(t.ask(call.with(read_payload(call.xid, t.target.file, 0, fits)))).payload);
       t.expect(result.count == fits && has_pattern(result.inline_data, kFileSeed),
                "all data in a reply of 1024 bytes");
       call.xid = t.next_xid();
       t.expect(is_err_chunk(t.ask(call.with(read_payload(call.xid, t.target.file, 0, fits + 4))), call.xid),
                "ERR_CHUNK for four bytes more");
     }},
    {"V1_063_V1_069_a_threshold_that_was_announced_is_used", Level::Decision, Needs::File,
     "RFC 8797, 4: with private data of both sides replies may be longer than 1024 octets.",
     [](Trial& t) {
       t.connect(rpcrdma::PrivateData{.send_bytes = 4096, .receive_bytes = 4096});
       if (!t.link().server_data()) t.skip("The server sends no private data of RFC 8797.");
       if (t.link().server_data()->send_bytes < 4096)
         t.skip("The server does not send messages of 4096 bytes.");
       const RawCall call{.xid = t.next_xid()};
       const ReadResult result =
           read_result(read_v1(t.ask(call.with(read_payload(call.xid, t.target.file, 0, 3000)))).payload);
       t.expect(result.count == 3000 && has_pattern(std::span(result.inline_data).first(3000), kFileSeed),
                "3000 bytes in one message");
     }},
    {"V1_067_a_header_beyond_the_threshold_is_not_sent", Level::Should, Needs::File,
     "RFC 8166, 4.5.3: ERR_CHUNK; no reply chunk helps when the chunk lists alone are too long.",
     [](Trial& t) {
       constexpr std::uint32_t kChunks = 5, kSegments = 14;
       t.connect(rpcrdma::PrivateData{.send_bytes = 4096, .receive_bytes = 1024});
       if (!t.link().server_data() || t.link().server_data()->receive_bytes < 4096)
         t.skip("The server does not announce that it receives messages of 4096 bytes.");
       const Exposed memory = t.writable(std::size_t{kChunks} * kSegments * 16);
       RawCall call{.xid = t.next_xid()};
       for (std::uint32_t i = 0; i < kChunks; ++i) {
         Segments chunk;
         for (std::uint32_t n = 0; n < kSegments; ++n)
           chunk.push_back(part(memory.segment, (i * kSegments + n) * 16, 16));
         call.writes.push_back(chunk);
       }
       t.expect(is_err_chunk(t.ask(call.with(read_payload(call.xid, t.target.file, 0, 100))), call.xid),
                "ERR_CHUNK");
       t.expect_alive();
     }},
    {"V1_068_two_programs_share_a_connection", Level::Must, Needs::Root,
     "RFC 8166, 3.3: thresholds and credits are those of the connection, whatever the program.",
     [](Trial& t) {
       t.connect();
       for (int i = 0; i < 5; ++i) {
         const std::uint32_t xid = t.next_xid();
         accept_stat_of(read_v1(t.ask(RawCall{.xid = xid}.with(rpc_call(xid, 100227, 3, 0)))).payload);
         const std::uint32_t other = t.next_xid();
         t.expect(
             nfs_status(
                 read_v1(t.ask(RawCall{.xid = other}.with(getattr_payload(other, t.target.root)))).payload) ==
                 0,
             "GETATTR succeeds between calls of NFSACL");
       }
     }},
    {"V1_152_a_call_that_is_sent_again_on_another_connection_is_answered", Level::Must, Needs::Root,
     "RFC 8166, 4.5.4: after a connection is lost, pending calls are sent again with the same XID.",
     [](Trial& t) {
       for (const bool awaited : {false, true}) {
         t.connect();
         const RawCall call{.xid = t.next_xid()};
         const Bytes message = call.with(getattr_payload(call.xid, t.target.root));
         t.send(message);
         if (awaited) t.answer();
         t.connect();
         const Bytes reply = read_v1(t.ask(message)).payload;
         t.expect(word_at(reply, 0) == call.xid && nfs_status(reply) == 0, "GETATTR succeeds");
       }
     }},
    {"V1_153_a_call_that_is_sent_again_has_new_chunks", Level::Must, Needs::File,
     "RFC 8166, 3.4.2 and 4.5.4: the old handles are gone; the reply uses those of the call that it answers.",
     [](Trial& t) {
       const std::uint32_t xid = t.next_xid();
       for (int i = 0; i < 3; ++i) {
         t.connect();
         const Exposed memory = t.writable(1000);
         const RawReply reply = read_v1(t.ask(RawCall{.xid = xid, .writes = {{memory.segment}}}.with(
             read_payload(xid, t.target.file, 0, 1000))));
         t.expect(reply.writes.size() == 1 && reply.writes[0].size() == 1 &&
                      reply.writes[0][0].handle == memory.segment.handle &&
                      reply.writes[0][0].offset == memory.segment.offset,
                  "the chunk of this call");
         t.expect(has_pattern(memory.bytes, kFileSeed), "the data in it");
       }
     }},
};

}  // namespace

std::span<const Test> tests_of_credits() {
  return kTests;
}

}  // namespace sluice::conformance
