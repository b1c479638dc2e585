// SPDX-License-Identifier: Apache-2.0
//
// Version 1: Read chunks and long calls at the server.
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "cli/conformance/tests.h"

namespace sluice::conformance {
namespace {

/// Writes at the start of the file with a chunk in pieces of these sizes. The count word is `count`.
RawReply write_by(Trial& t, std::uint32_t count, const std::vector<std::uint32_t>& cuts,
                  const Exposed& memory) {
  RawCall call{.xid = t.next_xid()};
  const Bytes payload = write_payload(call.xid, t.target.file, 0, count);
  std::uint32_t at = 0;
  for (const std::uint32_t cut : cuts) {
    call.reads.push_back({position_of(payload), part(memory.segment, at, cut)});
    at += cut;
  }
  return read_v1(t.ask(call.with(payload)));
}

void written(Trial& t, std::uint32_t count, const std::vector<std::uint32_t>& cuts, std::uint32_t seed) {
  std::uint32_t bytes = 4;
  for (const std::uint32_t cut : cuts) bytes += cut;
  const Exposed memory = t.readable(bytes, seed);
  t.expect(nfs_status(write_by(t, count, cuts, memory).payload) == 0, "the WRITE succeeds");
  t.expect(has_pattern(file_content(t, 0, count), seed), "the file holds what is in the chunk");
}

/// Restores the content that later tests read.
void restore(Trial& t) {
  written(t, kFileBytes, {kFileBytes}, kFileSeed);
}

void refused_or_garbage(Trial& t, const RawCall& call, const Bytes& payload) {
  const Bytes answer = t.ask(call.with(payload));
  t.expect(is_err_chunk(answer, call.xid) || accept_stat_of(read_v1(answer).payload) == 4,
           "ERR_CHUNK or GARBAGE_ARGS");
  t.expect_alive();
}

const Test kReadChunkTests[] = {
    {"V1_012_V1_072_V1_085_V1_087_data_of_odd_length_comes_by_a_chunk", Level::Must, Needs::File,
     "RFC 8166, 3.4.5: the position is that in the RPC message, and round-up is not in the chunk.",
     [](Trial& t) {
       t.connect();
       for (const std::uint32_t bytes : {5001u, 5002u, 5003u, 5004u})
         written(t, bytes, {4096, bytes - 4096}, bytes);
       restore(t);
     }},
    {"V1_079_pieces_of_any_length_are_joined_in_list_order", Level::Must, Needs::File,
     "RFC 8166, 3.4.5: segments of one position are one chunk, in the order of the list.",
     [](Trial& t) {
       t.connect();
       written(t, 116, {7, 9, 100}, 3);
       restore(t);
     }},
    {"V1_080_a_chunk_of_many_segments_is_read", Level::Should, Needs::File,
     "RFC 8166, 3.4.5; RFC 8267, 6.4 requires sixteen segments.",
     [](Trial& t) {
       t.connect();
       written(t, 16 * 256, std::vector<std::uint32_t>(16, 256), 4);
       written(t, 32 * 256, std::vector<std::uint32_t>(32, 256), 5);
       restore(t);
     }},
    {"V1_086_round_up_in_a_longer_last_segment_is_accepted", Level::Must, Needs::File,
     "RFC 8166, 3.4.5.2: the total may be the length with its padding.",
     [](Trial& t) {
       t.connect();
       written(t, 5001, {4096, 908}, 6);
       restore(t);
     }},
    {"V1_086_round_up_in_a_segment_of_its_own_is_accepted", Level::Should, Needs::File,
     "RFC 5666, 3.7: old requesters include the padding.",
     [](Trial& t) {
       t.connect();
       written(t, 5001, {4096, 905, 3}, 7);
       restore(t);
     }},
    {"V1_088_round_up_is_no_data", Level::Must, Needs::File,
     "RFC 4506, 3: octets that follow the data are not part of it.",
     [](Trial& t) {
       t.connect();
       const Bytes before = file_content(t, 5001, 3);
       const Exposed memory = t.readable(5004, 8);
       fill(memory.bytes.subspan(5001), std::byte{0xEE});
       t.expect(nfs_status(write_by(t, 5001, {5004}, memory).payload) == 0, "the WRITE succeeds");
       t.expect(file_content(t, 5001, 3) == before, "the file is as it was behind the data");
       restore(t);
     }},
    {"V1_073_count_and_chunk_that_disagree_are_refused", Level::Must, Needs::File,
     "RFC 8166, 3.4.4 and 3.4.5.2: the count equals the length of the chunk, but for round-up.",
     [](Trial& t) {
       t.connect();
       for (const std::uint32_t chunk : {4997u, 5005u, 6000u}) {
         RawCall call{.xid = t.next_xid()};
         const Bytes payload = write_payload(call.xid, t.target.file, 0, 5001);
         call.reads = {{position_of(payload), part(t.readable(6000, 9).segment, 0, chunk)}};
         refused_or_garbage(t, call, payload);
       }
       t.expect(has_pattern(file_content(t, 0, 512), kFileSeed), "the file is as it was");
     }},
    {"V1_035_a_chunk_in_the_middle_of_a_fixed_argument_is_refused", Level::Should, Needs::File,
     "RFC 8166, 4.5.2: GARBAGE_ARGS, or ERR_CHUNK if the chunk is recognized as wrong.",
     [](Trial& t) {
       t.connect();
       RawCall call{.xid = t.next_xid()};
       const Bytes payload = write_payload(call.xid, t.target.file, 0, 64);
       call.reads = {{position_of(payload) - 12, t.readable(64, 1).segment}};
       refused_or_garbage(t, call, payload);
       t.expect(has_pattern(file_content(t, 0, 64), kFileSeed), "the file is as it was");
     }},
    {"V1_071_a_chunk_holds_all_of_its_item", Level::Should, Needs::File,
     "RFC 8166, 3.4.4: an item is moved as a whole; here the second half is in the payload.",
     [](Trial& t) {
       t.connect();
       RawCall call{.xid = t.next_xid()};
       Bytes payload = write_payload(call.xid, t.target.file, 0, 64);
       call.reads = {{position_of(payload), t.readable(32, 1).segment}};
       payload.resize(payload.size() + 32);
       refused_or_garbage(t, call, payload);
       t.expect(has_pattern(file_content(t, 0, 64), kFileSeed), "the file is as it was");
     }},
    {"V1_077_a_chunk_begins_behind_the_count", Level::Should, Needs::File,
     "RFC 8166, 3.4.4 and 3.4.5: the count of an item stays in the payload; here the chunk holds it too.",
     [](Trial& t) {
       t.connect();
       RawCall call{.xid = t.next_xid()};
       Bytes payload = write_payload(call.xid, t.target.file, 0, 64);
       payload.resize(payload.size() - 4);
       const Exposed memory = t.readable(68, 1);
       xdr::store_u32(memory.bytes.data(), 64);
       call.reads = {{position_of(payload), memory.segment}};
       refused_or_garbage(t, call, payload);
       t.expect(has_pattern(file_content(t, 0, 64), kFileSeed), "the file is as it was");
     }},
    {"V1_078_a_position_that_is_not_aligned_is_refused", Level::Must, Needs::File,
     "RFC 8166, 3.4.5: positions are multiples of four.",
     [](Trial& t) {
       t.connect();
       RawCall call{.xid = t.next_xid()};
       const Bytes payload = write_payload(call.xid, t.target.file, 0, 64);
       call.reads = {{position_of(payload) - 2, t.readable(64, 1).segment}};
       refused_or_garbage(t, call, payload);
       t.expect(has_pattern(file_content(t, 0, 64), kFileSeed), "the file is as it was");
     }},
    {"V1_089_a_position_behind_the_message_is_refused", Level::Must, Needs::File,
     "RFC 8166, 4.5.2: chunk and payload do not match.",
     [](Trial& t) {
       t.connect();
       RawCall call{.xid = t.next_xid()};
       const Bytes payload = write_payload(call.xid, t.target.file, 0, 64);
       call.reads = {{4096, t.readable(64, 1).segment}};
       refused_or_garbage(t, call, payload);
     }},
    {"V1_089_chunks_that_overlap_are_refused", Level::Must, Needs::File,
     "RFC 8166, 4.5.2: two chunks have data for one position.",
     [](Trial& t) {
       t.connect();
       RawCall call{.xid = t.next_xid()};
       const Bytes payload = write_payload(call.xid, t.target.file, 0, 512);
       const Exposed memory = t.readable(512, 1);
       call.reads = {{position_of(payload), memory.segment},
                     {position_of(payload) + 4, part(memory.segment, 0, 8)}};
       refused_or_garbage(t, call, payload);
       t.expect(has_pattern(file_content(t, 0, 512), kFileSeed), "the file is as it was");
     }},
    {"V1_089_lengths_beyond_all_limits_are_refused", Level::Must, Needs::File,
     "RFC 8166, 8.1: hostile lengths cause neither an overflow nor an allocation.",
     [](Trial& t) {
       t.connect();
       RawCall call{.xid = t.next_xid()};
       const Bytes payload = write_payload(call.xid, t.target.file, 0, 0xFFFFFFF0);
       rpcrdma::Segment huge = t.readable(64, 1).segment;
       huge.length = 0xFFFFFFFF;
       for (int i = 0; i < 3; ++i) call.reads.push_back({position_of(payload), huge});
       refused_or_garbage(t, call, payload);
     }},
    {"V1_089_segments_of_length_zero_are_skipped", Level::Decision, Needs::File,
     "A-11: the documents neither forbid nor describe them.",
     [](Trial& t) {
       t.connect();
       written(t, 500, {0, 200, 0, 300}, 10);
       restore(t);
     },
     true},
    {"V1_083_all_is_read_before_the_reply", Level::Must, Needs::File,
     "RFC 8166, 3.4.5.3: the reply indicates that the memory may be reused.",
     [](Trial& t) {
       t.connect();
       for (std::uint32_t i = 0; i < 8; ++i) {
         const Exposed memory = t.readable(kFileBytes, 20 + i);
         t.expect(nfs_status(write_by(t, kFileBytes, {8192, 8192}, memory).payload) == 0,
                  "the WRITE succeeds");
         fill(memory.bytes, std::byte{0xEE});
         const Bytes content = file_content(t, 0, 1024);
         t.expect(has_pattern(content, 20 + i), "the file holds what was there before the reply");
       }
       restore(t);
     }},
    {"V1_017_V1_149_offsets_are_start_values_as_they_are_given", Level::Must, Needs::File,
     "RFC 8166, 3.4.1 and 4.1: a handle, a length and an offset of 64 bits.",
     [](Trial& t) {
       t.connect();
       const Exposed memory = t.readable(8192, 11);
       RawCall call{.xid = t.next_xid()};
       const Bytes payload = write_payload(call.xid, t.target.file, 0, 100);
       call.reads = {{position_of(payload), part(memory.segment, 4097, 100)}};
       t.expect(nfs_status(read_v1(t.ask(call.with(payload))).payload) == 0, "the WRITE succeeds");
       const Bytes content = file_content(t, 0, 100);
       t.expect(std::memcmp(content.data(), memory.bytes.data() + 4097, content.size()) == 0,
                "the file holds what is at that offset");
       restore(t);
     }},
    {"V1_090_V1_136_V1_148_a_reply_exposes_no_memory", Level::Must, Needs::File,
     "RFC 8166, 4.1 and 8.1.1: responders expose none, so a reply has no Read list.",
     [](Trial& t) {
       t.connect();
       const Exposed memory = t.readable(512, kFileSeed);
       const RawReply reply = write_by(t, 512, {512}, memory);
       t.expect(reply.writes.empty() && !reply.reply,
                "a reply without chunks where none were offered for it");
     }},
    {"V1_188_a_reduced_argument_that_is_not_eligible_gets_one_of_two_answers", Level::Must, Needs::Root,
     "RFC 8166, 6.1: the call is executed correctly, or answered with ERR_CHUNK or GARBAGE_ARGS.",
     [](Trial& t) {
       t.connect();
       const RawCall bare{.xid = t.next_xid()};
       Bytes payload = getattr_payload(bare.xid, t.target.root);
       xdr::store_u32(payload.data() + 20, 3);  // LOOKUP
       append(payload, words({3}));
       const Exposed memory = t.readable(4, 1);
       const Bytes name = words({0x7A7A7A00});  // "zzz"
       place(memory, name);
       RawCall call = bare;
       call.reads = {{position_of(payload), part(memory.segment, 0, 3)}};
       const Bytes answer = t.ask(call.with(payload));
       if (!is_err_chunk(answer, call.xid)) {
         const Bytes result = read_v1(answer).payload;
         const std::uint32_t stat = accept_stat_of(result);
         t.expect(stat == 4 || (stat == 0 && nfs_status(result) == 2),
                  "NFS3ERR_NOENT, ERR_CHUNK or GARBAGE_ARGS");
       }
       t.expect_alive();
     }},
    {"V1_193_the_path_of_SYMLINK_comes_by_a_chunk", Level::Must, Needs::File,
     "RFC 8267, 4: the pathname of SYMLINK is eligible.",
     [](Trial& t) {
       t.connect();
       const std::string name = t.target.name + ".link";
       RawCall call{.xid = t.next_xid()};
       const Bytes payload = symlink_payload(call.xid, t.target.root, name, 10);
       const Exposed memory = t.readable(12, 1);
       fill(memory.bytes, std::byte{'p'});
       call.reads = {{position_of(payload), part(memory.segment, 0, 10)}};
       const Bytes made = read_v1(t.ask(call.with(payload))).payload;
       t.expect(nfs_status(made) == 0, "SYMLINK succeeds");
       const RawCall ask{.xid = t.next_xid()};
       const Bytes path = read_v1(t.ask(ask.with(readlink_payload(ask.xid, made_handle(made))))).payload;
       t.expect(path.size() >= 16 && word_at(path, path.size() / 4 - 4) == 10 &&
                    word_at(path, path.size() / 4 - 3) == 0x70707070 &&
                    word_at(path, path.size() / 4 - 1) == 0x70700000,
                "READLINK returns the path of ten letters");
       const RawCall remove{.xid = t.next_xid()};
       t.ask(remove.with(remove_payload(remove.xid, t.target.root, name)));
     }},
};

}  // namespace

std::span<const Test> tests_of_read_chunks() {
  return kReadChunkTests;
}

// --- Long calls

namespace {

/// Describes how a call was answered, so that two answers can be compared.
std::string verdict(const Bytes& answer, std::uint32_t xid) {
  if (is_err_chunk(answer, xid)) return "ERR_CHUNK";
  const Bytes payload = read_v1(answer).payload;
  const std::uint32_t stat = accept_stat_of(payload);
  return "accept_stat " + std::to_string(stat) +
         (stat == 0 ? ", status " + std::to_string(nfs_status(payload)) : std::string());
}

const Test kLongCallTests[] = {
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
     "RFC 8166, 3.4.5: a call has as many segments as the header has room for.",
     [](Trial& t) {
       t.connect();
       const std::uint32_t xid = t.next_xid();
       const Bytes answer = t.ask(long_call(t, xid, getattr_payload(xid, t.target.root), 40).header());
       t.expect(nfs_status(read_v1(answer).payload) == 0, "GETATTR succeeds");
     }},
    {"V1_113_eligible_data_may_be_in_the_Position_Zero_chunk", Level::Must, Needs::File,
     "RFC 8166, 3.5.3: the chunk holds the whole message, including eligible items.",
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
     "RFC 8166, 3.5.3 allows the chunk in RDMA_NOMSG only; the payload has the same position.",
     [](Trial& t) {
       t.connect();
       RawCall call{.xid = t.next_xid()};
       call.reads = {{0, t.readable(40, 1).segment}};
       t.expect(is_err_chunk(t.ask(call.with(null_payload(call.xid))), call.xid), "ERR_CHUNK");
       t.expect_alive();
     }},
    {"V1_191_a_long_call_makes_nothing_eligible", Level::Should, Needs::Root,
     "RFC 8166, 6.1: a chunk for the name of LOOKUP is treated as in a call that is not long.",
     [](Trial& t) {
       t.connect();
       const Exposed name = t.readable(4, 1);
       const Bytes text = words({0x7A7A7A00});  // "zzz"
       place(name, text);
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
};

}  // namespace

std::span<const Test> tests_of_long_calls() {
  return kLongCallTests;
}

}  // namespace sluice::conformance
