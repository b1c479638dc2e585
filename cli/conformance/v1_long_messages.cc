// SPDX-License-Identifier: Apache-2.0
//
// Version 1: long calls and Reply chunks at the server.
#include <algorithm>

#include "cli/conformance/tests.h"

namespace sluice::conformance {
namespace {

/// An RDMA_NOMSG whose Position Zero chunk holds the payload, in so many segments.
RawCall long_call(Trial& t, std::uint32_t xid, const Bytes& payload, std::uint32_t segments = 1) {
  const auto bytes = static_cast<std::uint32_t>(payload.size());
  const Exposed memory = t.readable(bytes, 0);
  std::copy(payload.begin(), payload.end(), memory.bytes.begin());
  RawCall call{.xid = xid, .proc = 1};
  for (std::uint32_t i = 0; i < segments; ++i) {
    const std::uint32_t from = bytes * i / segments;
    call.reads.push_back({0, part(memory.segment, from, bytes * (i + 1) / segments - from)});
  }
  return call;
}

/// The RPC reply, from wherever it is. In an RDMA_MSG the Reply chunk has to be unused.
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

/// How a call was taken, so that two can be compared.
std::string verdict(const Bytes& answer, std::uint32_t xid) {
  if (is_err_chunk(answer, xid)) return "ERR_CHUNK";
  const Bytes payload = read_v1(answer).payload;
  const std::uint32_t stat = accept_stat_of(payload);
  return "accept_stat " + std::to_string(stat) +
         (stat == 0 ? ", status " + std::to_string(nfs_status(payload)) : std::string());
}

const Test kTests[] = {
    {"V1_114_a_short_call_may_be_long", Level::Must, Needs::Nothing,
     "RFC 8166, 3.5.3: any call may be sent as RDMA_NOMSG with a Position Zero Read chunk.",
     [](Trial& t) {
       t.connect();
       const std::uint32_t xid = t.next_xid();
       t.expect(accept_stat_of(read_v1(t.ask(long_call(t, xid, null_payload(xid)).header())).payload) == 0,
                "NULL succeeds");
     }},
    {"V1_115_the_Position_Zero_chunk_may_have_several_segments", Level::Must, Needs::Root,
     "RFC 8166, 3.4.5: a Read chunk is all segments of its position.",
     [](Trial& t) {
       t.connect();
       for (const std::uint32_t segments : {1u, 2u, 8u}) {
         const std::uint32_t xid = t.next_xid();
         const Bytes answer =
             t.ask(long_call(t, xid, getattr_payload(xid, t.target.root), segments).header());
         t.expect(nfs_status(read_v1(answer).payload) == 0,
                  "GETATTR succeeds with " + std::to_string(segments) + " segments");
       }
     }},
    {"V1_115_V1_080_the_Position_Zero_chunk_may_have_forty_segments", Level::Should, Needs::Root,
     "RFC 8166, 3.4.5: as many as the header has room for.",
     [](Trial& t) {
       t.connect();
       const std::uint32_t xid = t.next_xid();
       const Bytes answer = t.ask(long_call(t, xid, getattr_payload(xid, t.target.root), 40).header());
       t.expect(nfs_status(read_v1(answer).payload) == 0, "GETATTR succeeds");
     }},
    {"V1_113_eligible_data_may_be_in_the_Position_Zero_chunk", Level::Must, Needs::File,
     "RFC 8166, 3.5.3: it holds the whole message, whatever is in it.",
     [](Trial& t) {
       t.connect();
       const std::uint32_t xid = t.next_xid();
       Bytes payload = write_payload(xid, t.target.file, 0, 3000);
       for (std::uint32_t i = 0; i < 3000; ++i) payload.push_back(pattern_byte(31, i));
       t.expect(nfs_status(read_v1(t.ask(long_call(t, xid, payload).header())).payload) == 0,
                "the WRITE succeeds");
       t.expect(has_pattern(file_content(t, 0, 3000), 31), "the file holds the data");
     }},
    {"V1_116_V1_082_a_long_call_may_have_a_chunk_for_its_data_too", Level::Must, Needs::File,
     "RFC 8166, 3.5.3 and 4.3.1: both chunks are read, in whichever order they are listed.",
     [](Trial& t) {
       t.connect();
       for (const bool data_first : {false, true}) {
         const std::uint32_t xid = t.next_xid();
         const Bytes payload = write_payload(xid, t.target.file, 0, kFileBytes);
         RawCall call = long_call(t, xid, payload);
         const std::uint32_t seed = data_first ? kFileSeed : 32;
         const RawRead data{position_of(payload), t.readable(kFileBytes, seed).segment};
         call.reads.insert(data_first ? call.reads.begin() : call.reads.end(), data);
         t.expect(nfs_status(read_v1(t.ask(call.header())).payload) == 0,
                  data_first ? "the WRITE succeeds with the data listed first" : "the WRITE succeeds");
         t.expect(has_pattern(file_content(t, 0, 1024), seed), "the file holds the data");
       }
     }},
    {"V1_117_RDMA_MSG_with_a_Position_Zero_chunk_is_refused", Level::Should, Needs::Nothing,
     "RFC 8166, 3.5.3 has it in RDMA_NOMSG alone; there would be two contents for one place.",
     [](Trial& t) {
       t.connect();
       RawCall call{.xid = t.next_xid()};
       call.reads = {{0, t.readable(40, 1).segment}};
       t.expect(is_err_chunk(t.ask(call.with(null_payload(call.xid))), call.xid), "ERR_CHUNK");
       t.expect_alive();
     }},
    {"V1_120_a_Reply_chunk_takes_the_reply", Level::Decision, Needs::Root,
     "A-02: by drafts before RFC 8166 always, by RFC 8166, 4.3.3 when the reply exceeds the threshold.",
     [](Trial& t) {
       t.connect();
       const Exposed memory = t.writable(1024);
       const RawCall call{.xid = t.next_xid(), .reply = {{memory.segment}}};
       const RawReply reply = read_v1(t.ask(call.with(getattr_payload(call.xid, t.target.root))));
       t.expect(reply.proc == 1, "RDMA_NOMSG");
     }},
    {"V1_121_V1_123_V1_124_a_Reply_chunk_comes_back_used_or_unused", Level::Must, Needs::Root,
     "RFC 8166, 3.5.3 and 4.3.3: the reply is in the chunk or inline, and the lengths say which.",
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
     "RFC 8166, 3.5.3 and 4.3.3: RDMA_NOMSG without payload; the sum of the lengths is that of the message.",
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
     "RFC 8166, 3.5.3: the chunk lists of the reply count, and here they leave no room for the rest.",
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
    {"V1_128_long_call_and_long_reply", Level::Must, Needs::File, "RFC 8166, 3.5.3: one RPC may use both.",
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
    {"V1_191_a_long_call_makes_nothing_eligible", Level::Should, Needs::Root,
     "RFC 8166, 6.1: a chunk for the name of LOOKUP is judged as in a call that is not long.",
     [](Trial& t) {
       t.connect();
       const Exposed name = t.readable(4, 1);
       const Bytes text = words({0x7A7A7A00});  // "zzz"
       std::copy(text.begin(), text.end(), name.bytes.begin());
       const auto lookup = [&](std::uint32_t xid) {
         Bytes payload = lookup_payload(xid, t.target.root, "zzz");
         payload.resize(payload.size() - 4);
         return payload;
       };
       const RawRead chunk{position_of(lookup(0)), part(name.segment, 0, 3)};
       const RawCall inline_call{.xid = t.next_xid(), .reads = {chunk}};
       const std::string as_message =
           verdict(t.ask(inline_call.with(lookup(inline_call.xid))), inline_call.xid);
       const std::uint32_t xid = t.next_xid();
       RawCall call = long_call(t, xid, lookup(xid));
       call.reads.push_back(chunk);
       const std::string as_long_call = verdict(t.ask(call.header()), xid);
       t.expect(as_long_call == as_message,
                "the same answer to both, but they are " + as_message + " and " + as_long_call);
       t.expect_alive();
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

std::span<const Test> tests_of_long_messages() {
  return kTests;
}

}  // namespace sluice::conformance
