// SPDX-License-Identifier: Apache-2.0
//
// Version 2: chunks, long messages and remote invalidation at the server.
#include <cstdint>
#include <string>

#include "cli/conformance/tests.h"
#include "cli/conformance/v2_calls.h"

namespace sluice::conformance {
namespace {

using v2::Header;

void write_in(Trial& t, std::uint32_t count, std::uint32_t seed, const std::vector<std::uint32_t>& cuts) {
  const std::uint32_t xid = t.next_xid();
  const Exposed memory = t.readable(count, seed);
  const Bytes payload = write_payload(xid, t.target.file, 0, count);
  Header call{.xid = xid};
  std::uint32_t at = 0;
  for (const std::uint32_t cut : cuts) {
    call.reads.push_back({position_of(payload), part(memory.segment, at, cut)});
    at += cut;
  }
  t.expect(nfs_status(read_v2(t.ask(call.with(payload))).payload) == 0, "the WRITE succeeds");
  t.expect(has_pattern(content_of(t, count), seed), "the file holds what is in the chunk");
}

/// Returns the answer to a READ of 16 bytes whose call has `chunks` Write chunks of `segments` segments each.
Bytes read_with(Trial& t, std::uint32_t xid, std::uint32_t chunks, std::uint32_t segments) {
  constexpr std::uint32_t kBytes = 16;
  const Exposed memory = t.writable(std::size_t{chunks} * segments * kBytes);
  Header call{.xid = xid};
  for (std::uint32_t i = 0; i < chunks; ++i) {
    Segments chunk;
    for (std::uint32_t n = 0; n < segments; ++n)
      chunk.push_back(part(memory.segment, (i * segments + n) * kBytes, kBytes));
    call.writes.push_back(chunk);
  }
  return t.ask(call.with(read_payload(xid, t.target.file, 0, kBytes)));
}

/// Reports whether the READ was answered with all its chunks.
bool served(const Bytes& answer, std::size_t chunks, std::size_t segments) {
  const RawReply reply = read_v2(answer);
  return read_result(reply.payload).count == 16 && reply.writes.size() == chunks &&
         reply.writes.back().size() == segments && bytes_in(reply.writes.front()) == 16;
}

const Test kV2ChunkTests[] = {
    {"V2_067_a_Position_Zero_chunk_in_a_MSG_is_refused", Level::Decision, Needs::Nothing, "D2-34: BAD_XDR.",
     [](Trial& t) {
       t.connect_v2();
       const std::uint32_t xid = t.next_xid();
       const Bytes answer =
           t.ask(Header{.xid = xid, .reads = {{0, t.readable(40, 1).segment}}}.with(null_payload(xid)));
       t.expect(v2::is_error(answer, xid, 2), "an ERROR BAD_XDR");
       t.expect_alive();
     }},
    {"V2_068_V2_069_a_long_call_is_executed", Level::Must, Needs::Root,
     "Version 2, 4.5.4 and 6.4.2: NOMSG with a Position Zero chunk, whatever the size.",
     [](Trial& t) {
       t.connect_v2();
       const std::uint32_t xid = t.next_xid();
       const Bytes payload = getattr_payload(xid, t.target.root);
       const Exposed memory = t.readable(payload.size(), 0);
       place(memory, payload);
       const Bytes answer =
           t.ask(Header{.xid = xid, .type = v2::kNoMsg, .reads = {{0, memory.segment}}}.bytes());
       t.expect(nfs_status(read_v2(answer).payload) == 0, "GETATTR succeeds");
     }},
    {"V2_070_octets_behind_the_body_are_a_fault", Level::Decision, Needs::Nothing, "D2-31: BAD_XDR.",
     [](Trial& t) {
       t.connect_v2();
       const std::uint32_t xid = t.next_xid();
       const Bytes answer =
           t.ask(Header{.xid = xid, .type = v2::kNoMsg, .reads = {{0, t.readable(40, 1).segment}}}.with(
               words({7})));
       t.expect(v2::is_error(answer, xid, 2), "an ERROR BAD_XDR");
     }},
    {"V2_071_V2_072_V2_076_segments_are_joined_in_list_order", Level::Must, Needs::File,
     "Version 2, 4.4.5: data of odd length has no round-up, and may be in segments of any length.",
     [](Trial& t) {
       t.connect_v2();
       write_in(t, 116, 3, {7, 9, 100});
       write_in(t, 5001, 4, {4096, 905});
       write_in(t, kFileBytes, kFileSeed, {kFileBytes});
     }},
    {"V2_071_V2_078_V2_096_results_are_written_without_round_up", Level::Must, Needs::File,
     "Version 2, 4.4.6 and 4.4.6.2: segments are filled in order without padding, and the lengths are those "
     "written.",
     [](Trial& t) {
       t.connect_v2();
       const Exposed memory = t.writable(2048);
       const std::uint32_t xid = t.next_xid();
       const Header call{.xid = xid,
                         .writes = {{part(memory.segment, 0, 1024), part(memory.segment, 1024, 1024)}}};
       const RawReply reply = read_v2(t.ask(call.with(read_payload(xid, t.target.file, 0, 1501))));
       t.expect(reply.writes.size() == 1 && reply.writes[0].size() == 2 &&
                    reply.writes[0][0].length == 1024 && reply.writes[0][1].length == 477,
                "lengths of 1024 and 477");
       t.expect(has_pattern(memory.bytes.first(1501), kFileSeed) && untouched(memory.bytes.subspan(1501)),
                "the data in order, and nothing behind it");
       t.expect(read_result(reply.payload).inline_data.empty(), "no data in the reply");
     }},
    {"V2_079_unused_chunks_come_back_with_length_zero", Level::Must, Needs::File,
     "Version 2 as RFC 8166, 4.3.",
     [](Trial& t) {
       t.connect_v2();
       const Exposed memory = t.writable(1024);
       const std::uint32_t xid = t.next_xid();
       const RawReply reply = read_v2(t.ask(
           Header{.xid = xid, .writes = {{memory.segment}}}.with(read_payload(xid, t.target.root, 0, 1024))));
       t.expect(nfs_status(reply.payload) != 0, "a READ of a folder fails");
       t.expect(reply.writes.size() == 1 && reply.writes[0].size() == 1 && bytes_in(reply.writes[0]) == 0,
                "the chunk with its segment and length zero");
     }},
    {"V2_079_empty_chunks_let_the_result_go_inline", Level::Must, Needs::File,
     "Version 2 as RFC 8166, 4.3.2.3.",
     [](Trial& t) {
       t.connect_v2();
       const std::uint32_t xid = t.next_xid();
       const RawReply reply =
           read_v2(t.ask(Header{.xid = xid, .writes = {{}}}.with(read_payload(xid, t.target.file, 0, 200))));
       const ReadResult result = read_result(reply.payload);
       t.expect(result.inline_data.size() == 200 && has_pattern(result.inline_data, kFileSeed),
                "the data in the reply");
     }},
    {"V2_080_V2_081_the_data_is_there_when_the_reply_is", Level::Must, Needs::File,
     "Version 2, 3.2.2.4: RDMA Writes are posted before the Send; the server offers no memory.",
     [](Trial& t) {
       t.connect_v2();
       for (int i = 0; i < 50; ++i)
         t.expect(has_pattern(content_of(t, kFileBytes), kFileSeed), "all data in the chunk");
     }},
    {"V2_073_what_is_not_eligible_stays_out_of_Write_chunks", Level::Must, Needs::Root,
     "Version 2, 4.4.2 and A.1, and RFC 8267, 4: the entries of READDIR are not eligible.",
     [](Trial& t) {
       t.connect_v2();
       const Exposed memory = t.writable(4096);
       const std::uint32_t xid = t.next_xid();
       const Header call{.xid = xid, .writes = {{memory.segment}}};
       const Bytes answer = t.ask(call.with(readdir_payload(xid, t.target.root, 512)));
       if (word_at(answer, 3) != v2::kError) {
         const RawReply reply = read_v2(answer);
         t.expect(nfs_status(reply.payload) == 0, "READDIR succeeds, or an ERROR");
         t.expect(reply.writes.size() == 1 && bytes_in(reply.writes[0]) == 0, "the chunk with length zero");
       }
       t.expect(untouched(memory.bytes), "nothing in the chunk");
     }},
    {"V2_074_a_chunk_holds_all_of_its_item", Level::Must, Needs::File,
     "Version 2, 4.4.4: one chunk is one item; here the second half is in the payload, and the count is that "
     "of the whole item.",
     [](Trial& t) {
       t.connect_v2();
       const std::uint32_t xid = t.next_xid();
       Bytes payload = write_payload(xid, t.target.file, 0, 64);
       const Header call{.xid = xid, .reads = {{position_of(payload), t.readable(32, 1).segment}}};
       payload.resize(payload.size() + 32);
       const Bytes answer = t.ask(call.with(payload));
       t.expect(v2::is_error(answer, xid, 2) || accept_stat_of(read_v2(answer).payload) == 4,
                "an ERROR BAD_XDR, or GARBAGE_ARGS");
       t.expect(has_pattern(content_of(t, 64), kFileSeed), "the file is as it was");
     }},
    {"V2_075_V2_082_positions_that_cannot_be_are_BAD_XDR", Level::Decision, Needs::File, "D2-35 and 4.4.5.",
     [](Trial& t) {
       t.connect_v2();
       for (const int form : {0, 1, 2}) {
         const std::uint32_t xid = t.next_xid();
         const Bytes payload = write_payload(xid, t.target.file, 0, 64);
         const rpcrdma::Segment segment = t.readable(64, 1).segment;
         Header call{.xid = xid};
         if (form == 0) call.reads = {{position_of(payload) - 2, segment}};
         if (form == 1) call.reads = {{position_of(payload) + 4000, segment}};
         if (form == 2) call.reads = {{position_of(payload), segment}, {position_of(payload) - 8, segment}};
         t.expect(v2::is_error(t.ask(call.with(payload)), xid, 2), "an ERROR BAD_XDR");
       }
       t.expect_alive();
     }},
    {"V2_083_V2_147_lengths_beyond_all_limits_are_refused", Level::Must, Needs::File,
     "Version 2, 10.1.4: such chunks need not be read; an ERROR ends the RPC.",
     [](Trial& t) {
       t.connect_v2();
       const std::uint32_t xid = t.next_xid();
       const Bytes payload = write_payload(xid, t.target.file, 0, 0xFFFFFFF0);
       rpcrdma::Segment huge = t.readable(64, 1).segment;
       huge.length = 0xFFFFFFFF;
       const Header call{.xid = xid, .reads = {{position_of(payload), huge}, {position_of(payload), huge}}};
       const Bytes answer = t.ask(call.with(payload));
       t.expect(word_at(answer, 3) == v2::kError || accept_stat_of(read_v2(answer).payload) == 4,
                "an ERROR or GARBAGE_ARGS");
       t.expect_alive();
     }},
    {"V2_097_V2_101_a_Reply_chunk_takes_a_long_reply", Level::Should, Needs::File,
     "Version 2, 4.5.4: the Reply chunk is used if the reply exceeds the threshold; continuation is allowed "
     "too (6.5).",
     [](Trial& t) {
       t.connect_v2();
       const Exposed memory = t.writable(12000);
       const std::uint32_t xid = t.next_xid();
       const RawReply reply = read_v2(t.ask(
           Header{.xid = xid, .reply = {{memory.segment}}}.with(read_payload(xid, t.target.file, 0, 10000))));
       t.expect(reply.proc == v2::kNoMsg && reply.reply && reply.payload.empty(),
                "NOMSG with the Reply chunk");
       const ReadResult result =
           read_result(memory.bytes.first(static_cast<std::size_t>(bytes_in(*reply.reply))));
       t.expect(result.count == 10000 && has_pattern(result.inline_data, kFileSeed),
                "10000 bytes of the file in it");
     }},
    {"V2_099_a_Reply_chunk_that_is_too_small_is_not_exceeded", Level::Should, Needs::File,
     "Version 2, 6.5: the reply is continued instead.",
     [](Trial& t) {
       t.connect_v2();
       const Exposed memory = t.writable(256);
       const std::uint32_t xid = t.next_xid();
       const Header call{.xid = xid, .reply = {{part(memory.segment, 0, 64)}}};
       const ReadResult result =
           read_result(joined(t, t.ask(call.with(read_payload(xid, t.target.file, 0, 6000)))));
       t.expect(result.count == 6000, "the data in parts");
       t.expect(untouched(memory.bytes.subspan(64)), "nothing behind the chunk");
     }},
    {"V2_102_V2_118_a_Write_chunk_that_is_too_small_is_WRITE_RESOURCE", Level::Must, Needs::File,
     "Version 2, 6.4.3: WRITE_RESOURCE has the index of the chunk and the octets that the result needs.",
     [](Trial& t) {
       t.connect_v2();
       const Exposed memory = t.writable(2048);
       const std::uint32_t xid = t.next_xid();
       const Header call{.xid = xid, .writes = {{part(memory.segment, 0, 1000)}}};
       const Bytes answer = t.ask(call.with(read_payload(xid, t.target.file, 0, 1001)));
       t.expect(v2::is_error(answer, xid, 8), "an ERROR WRITE_RESOURCE");
       t.expect(word_at(answer, 6) == 1 && word_at(answer, 7) == 1001, "chunk 1, 1001 octets");
       t.expect(untouched(memory.bytes.subspan(1000)), "nothing behind the chunk");
       t.expect_alive();
     }},
    {"V2_113_more_Read_chunks_than_are_taken_are_READ_CHUNKS", Level::Must, Needs::File,
     "Version 2, 6.4.3: the error has the number of chunks that the responder supports.",
     [](Trial& t) {
       t.connect_v2();
       const std::uint32_t xid = t.next_xid();
       const Bytes payload = write_payload(xid, t.target.file, 0, 512);
       Header call{.xid = xid};
       for (std::uint32_t i = 0; i < 14; ++i)
         call.reads.push_back({position_of(payload) + 8 * i, t.readable(4, 1).segment});
       const Bytes answer = t.ask(call.with(payload));
       const std::uint32_t code = word_at(answer, 5);
       t.expect(word_at(answer, 3) == v2::kError && (code == 5 || code == 7 || code == 2),
                "an ERROR READ_CHUNKS, SEGMENTS or BAD_XDR");
       if (code == 5) t.expect(answer.size() == 28 && word_at(answer, 6) < 14, "the most that it takes");
       t.expect_alive();
     }},
    {"V2_115_the_most_Write_chunks_are_told_and_taken", Level::Must, Needs::File,
     "Version 2, 6.4.3: WRITE_CHUNKS has the number of chunks that the responder fills.",
     [](Trial& t) {
       constexpr std::uint32_t kTooMany = 40;
       t.connect_v2();
       std::uint32_t xid = t.next_xid();
       const Bytes answer = read_with(t, xid, kTooMany, 1);
       if (word_at(answer, 3) != v2::kError) return t.expect(served(answer, kTooMany, 1), "all chunks");
       t.expect(v2::is_error(answer, xid, 6) && answer.size() == 28, "an ERROR WRITE_CHUNKS of 28 octets");
       const std::uint32_t most = word_at(answer, 6);
       t.expect(most < kTooMany, "a number below what was refused");
       if (most > 0) t.expect(served(read_with(t, t.next_xid(), most, 1), most, 1), "as many are served");
     }},
    {"V2_117_the_most_segments_are_told_and_taken", Level::Must, Needs::File,
     "Version 2, 5.2.4 and 6.4.3: SEGMENTS has the number of segments that the responder supports.",
     [](Trial& t) {
       constexpr std::uint32_t kTooMany = 230;  // fits a header of 4096 octets
       t.connect_v2();
       const std::uint32_t xid = t.next_xid();
       const Bytes answer = read_with(t, xid, 1, kTooMany);
       if (word_at(answer, 3) != v2::kError) return t.expect(served(answer, 1, kTooMany), "all segments");
       t.expect(v2::is_error(answer, xid, 7) && answer.size() == 28, "an ERROR SEGMENTS of 28 octets");
       const std::uint32_t most = word_at(answer, 6);
       t.expect(most < kTooMany && most >= announced(t, kSegmentCount).value_or(16),
                "a number below what was refused, and not below what was announced");
       t.expect(served(read_with(t, t.next_xid(), 1, most), 1, most), "as many are served");
     }},
    {"V2_127_V2_128_a_handle_that_was_named_may_be_invalidated", Level::Must, Needs::File,
     "Version 2, 6.3.3.2: the Send invalidates the handle of inv_handle or none; the reply is correct in "
     "both cases.",
     [](Trial& t) {
       t.connect_v2();
       const Exposed memory = t.writable(1024);
       const std::uint32_t xid = t.next_xid();
       const Header call{.xid = xid,
                         .invalidate = static_cast<std::uint32_t>(memory.segment.handle),
                         .writes = {{memory.segment}}};
       t.expect(
           read_result(read_v2(t.ask(call.with(read_payload(xid, t.target.file, 0, 1024)))).payload).count ==
               1024,
           "READ succeeds");
       t.expect(has_pattern(memory.bytes, kFileSeed), "the data in the chunk");
       t.expect_alive();
     }},
    {"V2_127_without_inv_handle_nothing_is_invalidated", Level::Must, Needs::File,
     "Version 2, 6.3.3.2: the reply is a Send without invalidation.",
     [](Trial& t) {
       t.connect_v2();
       content_of(t, 512);
       t.expect(!t.invalidated(), "plain Sends alone");
     }},
    {"V2_155_a_reduced_argument_that_is_not_eligible_is_reported", Level::Must, Needs::Root,
     "Version 2, A.1: the call is not processed. Here the name of CREATE is in a chunk.",
     [](Trial& t) {
       t.connect_v2();
       const std::string name = "conform8";
       std::uint32_t xid = t.next_xid();
       Bytes payload = create_payload(xid, t.target.root, name);
       const std::size_t at = getattr_payload(xid, t.target.root).size() + 4;
       const Exposed memory = t.readable(name.size(), 1);
       const auto begin = payload.begin() + static_cast<std::ptrdiff_t>(at);
       place(memory, std::span(payload).subspan(at, 8));
       payload.erase(begin, begin + 8);
       const Header call{.xid = xid, .reads = {{static_cast<std::uint32_t>(at), memory.segment}}};
       const Bytes answer = t.ask(call.with(payload));
       t.expect(v2::is_error(answer, xid, 2) || accept_stat_of(read_v2(answer).payload) == 4,
                "an ERROR BAD_XDR, or GARBAGE_ARGS");
       xid = t.next_xid();
       const Bytes found = t.ask(Header{.xid = xid}.with(lookup_payload(xid, t.target.root, name)));
       t.expect(nfs_status(read_v2(found).payload) == 2, "no such file");
     }},
};

}  // namespace

std::span<const Test> tests_of_version_2_chunks() {
  return kV2ChunkTests;
}

}  // namespace sluice::conformance
