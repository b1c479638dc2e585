// SPDX-License-Identifier: Apache-2.0
//
// Version 1: Write chunks and Reply chunks at the server.
#include <cstdint>
#include <utility>
#include <vector>

#include "cli/conformance/tests.h"

namespace sluice::conformance {
namespace {

RawReply read_into(Trial& t, std::vector<Segments> writes, std::uint32_t count, std::uint64_t offset = 0) {
  const RawCall call{.xid = t.next_xid(), .writes = std::move(writes)};
  return read_v1(t.ask(call.with(read_payload(call.xid, t.target.file, offset, count))));
}

bool same_places(const Segments& a, const Segments& b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i)
    if (a[i].handle != b[i].handle || a[i].offset != b[i].offset) return false;
  return true;
}

const Test kWriteChunkTests[] = {
    {"V1_003_a_reply_with_a_long_chunk_list_is_one_Send", Level::Must, Needs::File,
     "RFC 8166, 4.1: the whole header and the payload are in one Send; no part of a header is moved by RDMA.",
     [](Trial& t) {
       constexpr std::uint32_t kSegments = 16, kSegmentBytes = 8;
       t.connect();
       const Exposed memory = t.writable(std::size_t{kSegments} * kSegmentBytes);
       Segments offered;
       for (std::uint32_t i = 0; i < kSegments; ++i)
         offered.push_back(part(memory.segment, i * kSegmentBytes, kSegmentBytes));
       const RawReply reply = read_into(t, {offered}, 100);
       t.expect(reply.writes.size() == 1 && same_places(reply.writes[0], offered), "all sixteen segments");
       t.expect(read_result(reply.payload).count == 100, "the results behind them");
       t.expect(has_pattern(memory.bytes.first(100), kFileSeed) && untouched(memory.bytes.subspan(100)),
                "the data, and nothing else, in the chunk");
       t.expect(t.overheard() == 0, "one message");
     }},
    {"V1_070_what_is_not_eligible_stays_out_of_Write_chunks", Level::Must, Needs::Root,
     "RFC 8166, 3.4.3 and RFC 8267, 4: the entries of READDIR are not eligible, whatever their length.",
     [](Trial& t) {
       t.connect();
       const Exposed memory = t.writable(4096);
       const Exposed rest = t.writable(8192 + 512);
       const RawCall call{.xid = t.next_xid(), .writes = {{memory.segment}}, .reply = {{rest.segment}}};
       const Bytes answer = t.ask(call.with(readdir_payload(call.xid, t.target.root, 4096)));
       if (!is_err_chunk(answer, call.xid)) {
         const RawReply reply = read_v1(answer);
         t.expect(reply.writes.size() == 1 && bytes_in(reply.writes[0]) == 0, "the chunk with length zero");
         const std::size_t bytes = reply.proc == 1 && reply.reply ? bytes_in(*reply.reply) : 0;
         const Bytes in_chunk(rest.bytes.begin(), rest.bytes.begin() + static_cast<std::ptrdiff_t>(bytes));
         t.expect(nfs_status(reply.proc == 1 ? in_chunk : reply.payload) == 0,
                  "READDIR succeeds, or ERR_CHUNK");
       }
       t.expect(untouched(memory.bytes), "nothing in the chunk");
     }},
    {"V1_093_V1_195_data_goes_into_the_Write_chunk_however_short", Level::Must, Needs::File,
     "RFC 8166, 4.3.2: with a Write list, eligible results are moved by RDMA Write.",
     [](Trial& t) {
       t.connect();
       const Exposed memory = t.writable(8);
       const RawReply reply = read_into(t, {{memory.segment}}, 8);
       const ReadResult result = read_result(reply.payload);
       t.expect(result.length == 8 && result.inline_data.empty(), "the count in the reply, and no data");
       t.expect(has_pattern(memory.bytes, kFileSeed), "the data in the chunk");
     }},
    {"V1_094_V1_095_V1_096_segments_are_filled_in_order", Level::Must, Needs::File,
     "RFC 8166, 3.4.6: segments are filled in order; the reply returns all of them, with the lengths "
     "written.",
     [](Trial& t) {
       t.connect();
       const Exposed memory = t.writable(4096);
       const Segments offered{part(memory.segment, 0, 1024), part(memory.segment, 2048, 1024)};
       const RawReply reply = read_into(t, {offered}, 1501);
       t.expect(reply.writes.size() == 1 && same_places(reply.writes[0], offered),
                "the chunk with both segments");
       t.expect(reply.writes[0][0].length == 1024 && reply.writes[0][1].length == 477,
                "lengths of 1024 and 477");
       const Bytes second(memory.bytes.begin() + 2048, memory.bytes.begin() + 2048 + 477);
       bool right = has_pattern(memory.bytes.first(1024), kFileSeed);
       for (std::size_t i = 0; i < second.size(); ++i)
         right = right && second[i] == pattern_byte(kFileSeed, 1024 + i);
       t.expect(right, "the data in order");
     }},
    {"V1_096_V1_097_a_segment_that_is_not_reached_comes_back_with_length_zero", Level::Must, Needs::File,
     "RFC 8166, 3.4.6: the number of segments does not change.",
     [](Trial& t) {
       t.connect();
       const Exposed memory = t.writable(3072);
       const Segments offered{part(memory.segment, 0, 1024), part(memory.segment, 1024, 1024),
                              part(memory.segment, 2048, 1024)};
       const RawReply reply = read_into(t, {offered}, 600);
       t.expect(reply.writes.size() == 1 && same_places(reply.writes[0], offered),
                "the chunk with all segments");
       t.expect(reply.writes[0][0].length == 600 && reply.writes[0][1].length == 0 &&
                    reply.writes[0][2].length == 0,
                "lengths of 600, 0 and 0");
       t.expect(untouched(memory.bytes.subspan(600)), "nothing behind the data");
     }},
    {"V1_095_V1_097_chunks_without_a_result_come_back_unused", Level::Must, Needs::File,
     "RFC 8166, 4.3.2.2: the Write list is returned with all its chunks; unused ones have length zero.",
     [](Trial& t) {
       t.connect();
       const Exposed memory = t.writable(3072);
       const std::vector<Segments> offered{{part(memory.segment, 0, 1024)},
                                           {part(memory.segment, 1024, 1024)},
                                           {part(memory.segment, 2048, 1024)}};
       const RawReply reply = read_into(t, offered, 1000);
       t.expect(reply.writes.size() == 3, "three chunks");
       for (std::size_t i = 0; i < 3; ++i)
         t.expect(same_places(reply.writes[i], offered[i]), "the chunks in their order");
       t.expect(bytes_in(reply.writes[0]) == 1000 && bytes_in(reply.writes[1]) == 0 &&
                    bytes_in(reply.writes[2]) == 0,
                "lengths of 1000, 0 and 0");
       t.expect(untouched(memory.bytes.subspan(1024)), "nothing in the others");
     }},
    {"V1_097_V1_196_a_READ_that_fails_returns_its_chunk_unused", Level::Must, Needs::File,
     "RFC 8166, 4.3.2.2: a result that is absent uses no chunk.",
     [](Trial& t) {
       t.connect();
       const Exposed memory = t.writable(1024);
       const RawCall call{.xid = t.next_xid(), .writes = {{memory.segment}}};
       const RawReply reply = read_v1(t.ask(call.with(read_payload(call.xid, t.target.root, 0, 1024))));
       t.expect(nfs_status(reply.payload) != 0, "a READ of a folder fails");
       t.expect(reply.writes.size() == 1 && reply.writes[0].size() == 1 && bytes_in(reply.writes[0]) == 0,
                "the chunk with its segment and length zero");
       t.expect(untouched(memory.bytes), "nothing in the chunk");
     }},
    {"V1_098_results_and_chunks_are_paired_in_their_order", Level::Should, Needs::File,
     "RFC 8166, 4.3.2: the first chunk belongs to the first result, even if it is intentionally empty.",
     [](Trial& t) {
       t.connect();
       const Exposed memory = t.writable(1024);
       const RawReply reply = read_into(t, {{}, {memory.segment}}, 200);
       const ReadResult result = read_result(reply.payload);
       t.expect(result.inline_data.size() == 200 && has_pattern(result.inline_data, kFileSeed),
                "the data in the reply");
       t.expect(reply.writes.size() == 2 && reply.writes[0].empty() && bytes_in(reply.writes[1]) == 0,
                "the empty chunk, and the second with length zero");
       t.expect(untouched(memory.bytes), "nothing in the second");
     }},
    {"V1_101_V1_102_round_up_is_neither_written_nor_sent", Level::Must, Needs::File,
     "RFC 8166, 3.4.6.2 and 3.4.4: the padding of a reduced result is neither in the chunk nor in the "
     "payload.",
     [](Trial& t) {
       t.connect();
       const Exposed memory = t.writable(2048);
       const RawReply reply = read_into(t, {{memory.segment}}, 1501);
       t.expect(bytes_in(reply.writes.at(0)) == 1501, "a length of 1501");
       t.expect(untouched(memory.bytes.subspan(1501)), "nothing behind 1501 bytes");
       t.expect(read_result(reply.payload).inline_data.empty(), "a payload that ends with the count");
     }},
    {"V1_101_a_chunk_without_room_for_round_up_is_enough", Level::Must, Needs::File,
     "RFC 8166, 3.4.6.2: a requester provides no space for padding.",
     [](Trial& t) {
       t.connect();
       const Exposed memory = t.writable(2048);
       const RawReply reply = read_into(t, {{part(memory.segment, 0, 1501)}}, 1501);
       t.expect(read_result(reply.payload).count == 1501 && has_pattern(memory.bytes.first(1501), kFileSeed),
                "the data in the chunk");
     }},
    {"V1_106_the_data_is_there_when_the_reply_is", Level::Must, Needs::File,
     "RFC 8166, 4.3.2 and 2.2.2: RDMA Writes are posted before the Send.",
     [](Trial& t) {
       t.connect();
       for (int i = 0; i < 50; ++i) {
         const Exposed memory = t.writable(kFileBytes);
         read_into(t, {{memory.segment}}, kFileBytes);
         t.expect(has_pattern(memory.bytes, kFileSeed), "all data in the chunk");
       }
     }},
    {"V1_107_a_result_that_does_not_fit_its_chunk_is_refused", Level::Must, Needs::File,
     "RFC 8166, 4.5.3: ERR_CHUNK is sent; no data is written past the chunk.",
     [](Trial& t) {
       t.connect();
       const Exposed memory = t.writable(2048);
       const RawCall call{.xid = t.next_xid(), .writes = {{part(memory.segment, 0, 1000)}}};
       const Bytes answer = t.ask(call.with(read_payload(call.xid, t.target.file, 0, 1001)));
       t.expect(untouched(memory.bytes.subspan(1000)), "nothing behind the chunk");
       t.expect(is_err_chunk(answer, call.xid), "ERR_CHUNK");
       t.expect_alive();
     }},
    {"V1_111_a_chunk_without_segments_lets_its_result_go_inline", Level::Should, Needs::File,
     "RFC 8166, 4.3.2.3: an empty Write chunk means that the result is not reduced.",
     [](Trial& t) {
       t.connect();
       const RawReply reply = read_into(t, {{}}, 200);
       const ReadResult result = read_result(reply.payload);
       t.expect(result.inline_data.size() == 200 && has_pattern(result.inline_data, kFileSeed),
                "the data in the reply");
       t.expect(reply.writes.size() == 1 && reply.writes[0].empty(), "the chunk, without segments");
     }},
    {"V1_111_segments_of_length_zero_are_skipped", Level::Decision, Needs::File,
     "A-11: the documents neither forbid nor describe them.",
     [](Trial& t) {
       t.connect();
       const Exposed memory = t.writable(1024);
       const RawReply reply = read_into(t, {{part(memory.segment, 0, 0), memory.segment}}, 600);
       t.expect(reply.writes.at(0).size() == 2 && reply.writes[0][0].length == 0 &&
                    reply.writes[0][1].length == 600,
                "lengths of 0 and 600");
       t.expect(has_pattern(memory.bytes.first(600), kFileSeed), "the data in the second segment");
     }},
    {"V1_099_without_a_Write_list_the_data_is_inline", Level::Must, Needs::File,
     "RFC 8166, 4.3.2: results without a chunk stay in the payload.",
     [](Trial& t) {
       t.connect();
       const ReadResult result = read_result(read_into(t, {}, 501).payload);
       t.expect(result.inline_data.size() == 504 &&
                    has_pattern(std::span(result.inline_data).first(501), kFileSeed),
                "501 bytes and their padding in the reply");
     }},
    {"V1_189_a_Write_list_where_nothing_is_eligible_is_returned_unused_or_refused", Level::Should,
     Needs::Root, "RFC 8166, 4.3.2.2 and 6.1; RFC 5667, 4 allows NFS servers to ignore the list.",
     [](Trial& t) {
       t.connect();
       const Exposed memory = t.writable(1024);
       const RawCall call{.xid = t.next_xid(), .writes = {{memory.segment}}};
       const Bytes answer = t.ask(call.with(getattr_payload(call.xid, t.target.root)));
       if (!is_err_chunk(answer, call.xid)) {
         const RawReply reply = read_v1(answer);
         t.expect(nfs_status(reply.payload) == 0, "GETATTR succeeds, or ERR_CHUNK");
         t.expect(reply.writes.size() == 1 && bytes_in(reply.writes[0]) == 0, "the chunk with length zero");
       }
       t.expect(untouched(memory.bytes), "nothing in the chunk");
     }},
};

}  // namespace

std::span<const Test> tests_of_write_chunks() {
  return kWriteChunkTests;
}

// --- Reply chunks

namespace {

/// Returns the RPC reply from the message or the Reply chunk. In an RDMA_MSG the Reply chunk must be unused.
Bytes reply_in(Trial& t, const RawReply& reply, const Exposed& memory) {
  if (reply.proc == 0) {
    t.expect(!reply.reply || bytes_in(*reply.reply) == 0,
             "a Reply chunk of length zero in an RDMA_MSG (V1-123)");
    return reply.payload;
  }
  t.expect(reply.payload.empty(), "nothing behind the header of an RDMA_NOMSG (V1-007)");
  t.expect(reply.reply.has_value(), "the Reply chunk in an RDMA_NOMSG");
  return {memory.bytes.begin(), memory.bytes.begin() + static_cast<std::ptrdiff_t>(bytes_in(*reply.reply))};
}

const Test kReplyChunkTests[] = {
    {"V1_120_a_Reply_chunk_takes_the_reply", Level::Decision, Needs::Root,
     "A-02: drafts before RFC 8166 use the chunk always; RFC 8166, 4.3.3 uses it if the reply exceeds the "
     "threshold.",
     [](Trial& t) {
       t.connect();
       const Exposed memory = t.writable(1024);
       const RawCall call{.xid = t.next_xid(), .reply = {{memory.segment}}};
       const RawReply reply = read_v1(t.ask(call.with(getattr_payload(call.xid, t.target.root))));
       t.expect(reply.proc == 1, "RDMA_NOMSG");
     }},
    {"V1_121_V1_123_V1_124_a_Reply_chunk_comes_back_used_or_unused", Level::Must, Needs::Root,
     "RFC 8166, 3.5.3 and 4.3.3: the reply is in the chunk or inline, as the returned lengths indicate.",
     [](Trial& t) {
       t.connect();
       const Exposed memory = t.writable(1024);
       const RawCall call{.xid = t.next_xid(), .reply = {{memory.segment}}};
       const RawReply reply = read_v1(t.ask(call.with(getattr_payload(call.xid, t.target.root))));
       t.expect(reply.reply && reply.reply->size() == 1 &&
                    reply.reply->front().handle == memory.segment.handle &&
                    reply.reply->front().offset == memory.segment.offset,
                "the Reply chunk with its segment");
       const Bytes payload = reply_in(t, reply, memory);
       t.expect(word_at(payload, 0) == call.xid && nfs_status(payload) == 0, "GETATTR succeeds");
     }},
    {"V1_007_V1_124_V1_126_a_long_reply_fills_the_segments_in_order", Level::Must, Needs::File,
     "RFC 8166, 3.5.3 and 4.3.3: the reply is an RDMA_NOMSG without payload; the lengths add up to the "
     "length of the message.",
     [](Trial& t) {
       t.connect();
       const Exposed memory = t.writable(4096);
       const Segments offered{part(memory.segment, 0, 1024), part(memory.segment, 1024, 1024),
                              part(memory.segment, 2048, 2048)};
       const RawCall call{.xid = t.next_xid(), .reply = offered};
       const RawReply reply = read_v1(t.ask(call.with(read_payload(call.xid, t.target.file, 0, 2001))));
       t.expect(reply.proc == 1 && reply.reply && reply.reply->size() == 3, "RDMA_NOMSG with three segments");
       t.expect((*reply.reply)[0].length == 1024 && (*reply.reply)[1].length == 1024, "two segments full");
       const Bytes payload = reply_in(t, reply, memory);
       const ReadResult result = read_result(payload);
       t.expect(word_at(payload, 0) == call.xid, "the XID at the chunk's beginning (V1-005)");
       t.expect(result.inline_data.size() == 2004 &&
                    has_pattern(std::span(result.inline_data).first(2001), kFileSeed),
                "2001 bytes and their padding, and no more");
       t.expect(memory.bytes[payload.size()] == std::byte{0xA5}, "nothing behind the message");
     }},
    {"V1_127_data_goes_to_the_Write_chunk_and_the_rest_to_the_Reply_chunk", Level::Must, Needs::File,
     "RFC 8166, 3.5.3 and 4.3: the reply is reduced first.",
     [](Trial& t) {
       t.connect();
       const Exposed data = t.writable(2048);
       const Exposed rest = t.writable(1024);
       const RawCall call{.xid = t.next_xid(), .writes = {{data.segment}}, .reply = {{rest.segment}}};
       const RawReply reply = read_v1(t.ask(call.with(read_payload(call.xid, t.target.file, 0, 2001))));
       const ReadResult result = read_result(reply_in(t, reply, rest));
       t.expect(result.length == 2001 && result.inline_data.empty(), "the count in the reply, and no data");
       t.expect(bytes_in(reply.writes.at(0)) == 2001 && has_pattern(data.bytes.first(2001), kFileSeed),
                "the data in the Write chunk");
     }},
    {"V1_066_what_is_too_long_when_it_is_reduced_goes_to_the_Reply_chunk", Level::Should, Needs::File,
     "RFC 8166, 3.5.3: the chunk lists of the reply count towards its length, and here leave no room for the "
     "rest.",
     [](Trial& t) {
       constexpr std::uint32_t kChunks = 4, kSegments = 14, kSegmentBytes = 64;
       t.connect();
       const Exposed data = t.writable(std::size_t{kChunks} * kSegments * kSegmentBytes);
       const Exposed rest = t.writable(1024);
       const std::uint32_t xid = t.next_xid();
       RawCall call = long_call(t, xid, read_payload(xid, t.target.file, 0, 500));
       for (std::uint32_t i = 0; i < kChunks; ++i) {
         Segments chunk;
         for (std::uint32_t n = 0; n < kSegments; ++n)
           chunk.push_back(part(data.segment, (i * kSegments + n) * kSegmentBytes, kSegmentBytes));
         call.writes.push_back(chunk);
       }
       call.reply = {{rest.segment}};
       const RawReply reply = read_v1(t.ask(call.header()));  // no longer than the threshold, as each message
       const ReadResult result = read_result(reply_in(t, reply, rest));
       t.expect(result.length == 500 && result.inline_data.empty(), "the count in the reply, and no data");
       t.expect(has_pattern(data.bytes.first(500), kFileSeed), "the data in the first Write chunk");
     }},
    {"V1_128_long_call_and_long_reply", Level::Must, Needs::File,
     "RFC 8166, 3.5.3: one RPC may use both a long call and a long reply.",
     [](Trial& t) {
       t.connect();
       const Exposed memory = t.writable(8192);
       const std::uint32_t xid = t.next_xid();
       RawCall call = long_call(t, xid, read_payload(xid, t.target.file, 0, 5000), 2);
       call.reply = {{memory.segment}};
       const RawReply reply = read_v1(t.ask(call.header()));
       t.expect(reply.proc == 1, "RDMA_NOMSG");
       const ReadResult result = read_result(reply_in(t, reply, memory));
       t.expect(result.count == 5000 && has_pattern(std::span(result.inline_data).first(5000), kFileSeed),
                "5000 bytes of the file");
     }},
    {"V1_129_an_RPC_error_comes_in_either_form", Level::Must, Needs::Root, "RFC 8166, 4.5.2 and 4.3.3.",
     [](Trial& t) {
       t.connect();
       const Exposed memory = t.writable(1024);
       const RawCall call{.xid = t.next_xid(), .reply = {{memory.segment}}};
       Bytes payload = getattr_payload(call.xid, t.target.root);
       payload.resize(68 + 4);
       t.expect(accept_stat_of(reply_in(t, read_v1(t.ask(call.with(payload))), memory)) == 4, "GARBAGE_ARGS");
       t.expect_alive();
     }},
    {"V1_122_without_a_Reply_chunk_there_is_no_RDMA_NOMSG", Level::Must, Needs::Root,
     "RFC 8166, 3.5.3: a long reply needs the requester's memory.",
     [](Trial& t) {
       t.connect();
       const RawCall call{.xid = t.next_xid()};
       const RawReply reply = read_v1(t.ask(call.with(readdir_payload(call.xid, t.target.root, 512))));
       t.expect(reply.proc == 0 && nfs_status(reply.payload) == 0, "READDIR of 512 bytes in an RDMA_MSG");
     }},
    {"V1_197_V1_194_a_long_READDIR_is_executed", Level::Must, Needs::Root,
     "RFC 8267, 4: its data is not eligible; call and reply may be long.",
     [](Trial& t) {
       t.connect();
       const Exposed memory = t.writable(8192 + 512);
       const std::uint32_t xid = t.next_xid();
       RawCall call = long_call(t, xid, readdir_payload(xid, t.target.root, 8192));
       call.reply = {{memory.segment}};
       t.expect(nfs_status(reply_in(t, read_v1(t.ask(call.header())), memory)) == 0, "READDIR succeeds");
     }},
};

}  // namespace

std::span<const Test> tests_of_reply_chunks() {
  return kReplyChunkTests;
}

}  // namespace sluice::conformance
