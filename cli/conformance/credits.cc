// SPDX-License-Identifier: Apache-2.0
//
// Credits of a server. The tests of version 1 include thresholds and connections; the tests of version 2
// cover both directions.
#include <cstdint>
#include <vector>

#include "cli/conformance/tests.h"
#include "cli/conformance/v2_calls.h"
#include "dataplane/base/small_algorithms.h"

namespace sluice::conformance {
namespace {

constexpr std::uint32_t kMostAtOnce = 128;  // fewer than our own Receives

std::uint32_t grant_of(Trial& t) {
  return word_at(t.ask(null_v1(t.next_xid())), 2);
}

/// Sends `calls` calls in one burst and checks that each of them is answered once.
void all_answered(Trial& t, std::uint32_t calls) {
  std::vector<std::uint32_t> open;
  for (std::uint32_t i = 0; i < calls; ++i) {
    open.push_back(t.next_xid());
    t.send(RawCall{.xid = open.back(), .credits = kMostAtOnce}.with(null_payload(open.back())));
  }
  for (std::uint32_t i = 0; i < calls; ++i)
    t.expect(std::erase(open, word_at(t.answer(), 0)) == 1, "one reply to each of the calls");
}

const Test kVersion1Tests[] = {
    {"V1_030_errors_grant_credits", Level::Must, Needs::Nothing,
     "RFC 8166, 4.2.3: rdma_credit is never zero, not even in an error; the failed request returns its "
     "credit.",
     [](Trial& t) {
       t.connect();
       const RawCall call{.xid = t.next_xid(), .proc = 9};
       const Bytes answer = t.ask(call.with(null_payload(call.xid)));
       t.expect(word_at(answer, 3) == 4 && word_at(answer, 2) >= 1,
                "an RDMA_ERROR that grants at least one credit");
       t.expect_alive();
     }},
    {"V1_041_V1_051_the_grant_is_a_limit_and_stays", Level::Should, Needs::Nothing,
     "RFC 8166, 3.3.1: the responder grants as many requests as it can process, not as many as it has free "
     "at the moment.",
     [](Trial& t) {
       t.connect();
       grant_of(t);
       const std::uint32_t grant = grant_of(t);
       for (int i = 0; i < 100; ++i) t.expect(grant_of(t) == grant, "the same grant in each reply");
     }},
    {"V1_042_a_request_for_no_credits_gets_one", Level::Must, Needs::Nothing,
     "RFC 8166, 3.3.1: a grant is at least one, because no request could be sent after a grant of zero.",
     [](Trial& t) {
       t.connect();
       const RawCall call{.xid = t.next_xid(), .credits = 0};
       t.expect(word_at(t.ask(call.with(null_payload(call.xid))), 2) >= 1, "a grant of at least one");
       t.expect_alive();
     }},
    {"V1_047_the_first_call_finds_a_Receive", Level::Must, Needs::Nothing,
     "RFC 8166, 3.3.3: Receives are posted before the connection is established.",
     [](Trial& t) {
       for (int i = 0; i < 5; ++i) {
         t.connect();
         t.expect_alive();
       }
     }},
    {"V1_048_the_request_may_change_with_each_call", Level::Must, Needs::Nothing,
     "RFC 8166, 3.3.1: both values may increase or decrease with any message.",
     [](Trial& t) {
       t.connect();
       for (const std::uint32_t credits : {1u, 128u, 2u, 0xFFFFFFFFu, 1u, 64u}) {
         const RawCall call{.xid = t.next_xid(), .credits = credits};
         const RawReply reply = read_v1(t.ask(call.with(null_payload(call.xid))));
         t.expect(accept_stat_of(reply.payload) == 0, "a NULL call succeeds");
         t.expect(reply.credit >= 1, "a grant of at least one");
         if (credits > 1) all_answered(t, smaller_of(smaller_of(reply.credit, credits), kMostAtOnce));
       }
     }},
    {"V1_052_all_that_is_granted_may_be_sent_at_once", Level::Must, Needs::Nothing,
     "RFC 8166, 3.3.1: each granted request has a Receive.",
     [](Trial& t) {
       t.connect();
       const std::uint32_t grant = smaller_of(grant_of(t), kMostAtOnce);
       for (int i = 0; i < 5; ++i) all_answered(t, grant);
     }},
    {"V1_054_requests_beyond_the_grant_hurt_nobody", Level::Must, Needs::Nothing,
     "RFC 8166, 3.3.1: the responder may process requests beyond its grant, or close the connection.",
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
     "RFC 8166, 4.6.2: the RDMA_DONE of an old requester uses no credit.",
     [](Trial& t) {
       t.connect();
       const std::uint32_t grant = smaller_of(grant_of(t), kMostAtOnce);
       t.send(words({t.next_xid(), 1, 32, 3}));
       all_answered(t, grant);
     }},
    {"V1_059_V1_156_a_new_connection_begins_anew", Level::Must, Needs::Nothing,
     "RFC 8166, 3.3.3: Receives and credits are those of a connection.",
     [](Trial& t) {
       for (int i = 0; i < 3; ++i) {
         t.connect();
         const std::uint32_t grant = smaller_of(grant_of(t), kMostAtOnce);
         for (std::uint32_t n = 0; n < grant; ++n) t.send(null_v1(t.next_xid()));  // then disconnects
       }
       t.connect();
       t.expect_alive();
     }},
    {"V1_057_calls_with_many_segments_come_all_at_once", Level::Must, Needs::File,
     "RFC 8166, 3.3.1: the number of concurrent RDMA Reads is not conveyed; a responder limits it itself.",
     [](Trial& t) {
       constexpr std::uint32_t kSegments = 8, kSegmentBytes = 512;
       t.connect();
       const std::uint32_t calls = smaller_of(grant_of(t), kMostAtOnce);
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
     "RFC 8166, 4.5: each request that cannot be processed is answered, however many there are.",
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
     "RFC 8166, 3.3.2: every receiver accepts messages of 1024 octets.",
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
     "RFC 8166, 3.3.2: header and payload together have at most 1024 octets, unless the ends have agreed on "
     "another threshold.",
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
       if (!t.server_data()) t.skip("The server sends no private data of RFC 8797.");
       if (t.server_data()->send_bytes < 4096) t.skip("The server does not send messages of 4096 bytes.");
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
       if (!t.server_data() || t.server_data()->receive_bytes < 4096)
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
     "RFC 8166, 3.3: thresholds and credits belong to the connection, not to a program.",
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
     "RFC 8166, 3.4.2 and 4.5.4: the old handles are invalid; the reply uses those of the call that it "
     "answers.",
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
  return kVersion1Tests;
}

// --- Version 2

namespace {

using v2::Header;

std::uint32_t limit_of(const Bytes& message) {
  return word_at(message, 2) >> 16;
}

Bytes grant(std::uint32_t credits) {
  return Header{.xid = 0, .credit = kNoCredits | credits, .type = v2::kNoMsg}.bytes();
}

/// Makes a connection whose server has used its initial credit for its properties and has no other credit.
void connect_without_credits(Trial& t) {
  t.connect();
  t.open_v2(properties(t.next_xid(), {}, 0));
}

const Test kVersion2Tests[] = {
    {"V2_033_the_credit_word_has_new_credits_and_their_limit", Level::Must, Needs::Nothing,
     "Version 2, 4.3.1.1: the low half of the credit word has the new credits, the high half the limit of "
     "outstanding messages.",
     [](Trial& t) {
       t.connect_v2();
       for (int i = 0; i < 300; ++i) {
         t.expect_alive();
         t.expect(t.credits_v2() <= limit_of(t.heard().back()), "no more credits than the limit");
       }
       t.overheard();
       t.expect(t.credits_v2() >= 1 && t.credits_v2() <= limit_of(t.heard().back()),
                "no more credits than the limit");
     }},
    {"V2_037_the_limit_of_a_peer_may_change", Level::Must, Needs::Nothing,
     "Version 2, 4.3.1.1: the limit may increase and decrease at any time; granted credits remain valid.",
     [](Trial& t) {
       t.connect_v2();
       for (const std::uint32_t limit : {1u, 65535u, 2u, 300u, 1u}) {
         const std::uint32_t xid = t.next_xid();
         const Bytes answer = t.ask(Header{.xid = xid, .credit = limit << 16 | 1}.with(null_payload(xid)));
         t.expect(accept_stat_of(read_v2(answer).payload) == 0, "a NULL call succeeds");
       }
       for (int i = 0; i < 100; ++i) t.expect_alive();
     }},
    {"V2_038_each_credit_is_a_Receive", Level::Must, Needs::Nothing,
     "Version 2, 4.3.1.1: all granted messages may be sent at once.",
     [](Trial& t) {
       t.connect_v2();
       for (int round = 0; round < 5; ++round) {
         std::vector<std::uint32_t> open;
         for (std::uint32_t left = smaller_of(t.credits_v2(), 128u); left > 0; --left) {
           open.push_back(t.next_xid());
           t.send(null_v2(open.back()));
         }
         while (!open.empty())
           t.expect(std::erase(open, word_at(t.answer(), 0)) == 1, "one reply to each of the calls");
       }
     }},
    {"V2_040_V2_035_a_server_without_credits_waits_for_a_grant", Level::Must, Needs::Nothing,
     "Version 2, 4.3.1.1 and 4.3.1.2: no reply is sent without a credit; a NOMSG without chunks grants new "
     "ones.",
     [](Trial& t) {
       connect_without_credits(t);
       const std::uint32_t xid = t.next_xid();
       t.send(Header{.xid = xid, .credit = kNoCredits}.with(null_payload(xid)));
       t.expect(t.overheard() == 0, "no reply before there is a credit for it");
       t.send(grant(4));
       t.expect(word_at(t.answer(), 0) == xid, "the reply behind the grant");
       t.expect_alive();
     }},
    {"V2_042_the_reserve_is_for_one_grant", Level::Decision, Needs::Nothing,
     "D2-15: an end without credits may send one grant and nothing else; an idle end sends nothing.",
     [](Trial& t) {
       connect_without_credits(t);
       for (int round = 0; round < 4; ++round) {  // the credits that it grants are used up again
         while (t.credits_v2() > 1) t.send(grant(0));
         t.overheard();
       }
       t.expect(t.heard().size() <= 2, "no more than properties and a grant");
       t.expect(t.heard().size() < 2 || v2::is_grant(t.heard()[1]), "a grant as the second message");
       t.send(grant(100));
       t.overheard();
       const std::size_t before = t.heard().size();
       t.overheard();
       t.expect(t.heard().size() == before, "silence");
     }},
};

}  // namespace

std::span<const Test> tests_of_version_2_credits() {
  return kVersion2Tests;
}

}  // namespace sluice::conformance
