// SPDX-License-Identifier: Apache-2.0
//
// The version 1 codec, compared with the worked examples, the negative vectors, and code made by rpcgen.
#include <gtest/gtest.h>
#include <rpc/rpc.h>

#include <algorithm>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "dataplane/rpcrdma/wire/v1.h"
#include "rpcrdma_v1.h"
#include "tests/golden/v1_vectors.h"
#include "tests/unit/rpcrdma/wire/changed.h"

namespace sluice::rpcrdma {
namespace {

using Bytes = std::vector<std::byte>;

Bytes bytes_of(std::span<const std::uint32_t> words) {
  Bytes bytes(words.size() * 4);
  for (std::size_t i = 0; i < words.size(); ++i) xdr::store_u32(bytes.data() + i * 4, words[i]);
  return bytes;
}

struct OwnedChunks {
  std::vector<ReadSegment> reads;
  std::vector<std::vector<Segment>> writes;
  std::vector<std::span<const Segment>> write_spans;
  std::vector<Segment> reply;
  bool has_reply = false;

  explicit OwnedChunks(const ChunkLists& lists) {
    for (std::uint32_t i = 0; i < lists.reads.size(); ++i) reads.push_back(lists.reads[i]);
    for (const WriteChunk chunk : lists.writes) {
      writes.emplace_back();
      for (std::uint32_t i = 0; i < chunk.size(); ++i) writes.back().push_back(chunk[i]);
    }
    for (const auto& chunk : writes) write_spans.emplace_back(chunk);
    has_reply = lists.reply.has_value();
    for (std::uint32_t i = 0; has_reply && i < lists.reply->size(); ++i) reply.push_back((*lists.reply)[i]);
  }
  v1::CallChunks view() const {
    v1::CallChunks chunks{reads, write_spans, std::nullopt};
    if (has_reply) chunks.reply = reply;
    return chunks;
  }
};

/// Decodes, encodes again from the decoded fields, and appends the payload.
Bytes round_trip(const Bytes& message) {
  const v1::DecodeResult decoded = v1::decode(message);
  EXPECT_EQ(decoded.status, v1::Decode::Ok);
  const v1::Header& header = decoded.header;
  Bytes out(message.size() + 64);
  xdr::Writer writer(out);
  if (header.procedure == v1::Procedure::Error) {
    if (header.error == v1::ErrorCode::Vers)
      v1::encode_err_vers(writer, header.fixed, header.fixed.credits);
    else
      v1::encode_err_chunk(writer, header.fixed, header.fixed.credits);
  } else {
    const OwnedChunks owned(header.chunks);
    EXPECT_EQ(v1::header_bytes(owned.view()), header.header_bytes);
    v1::encode_call(writer, header.fixed.xid, header.fixed.credits, header.procedure, owned.view());
  }
  EXPECT_TRUE(writer.ok());
  EXPECT_EQ(writer.position(), header.header_bytes);
  Bytes result(writer.written().begin(), writer.written().end());
  result.insert(result.end(), message.begin() + static_cast<std::ptrdiff_t>(header.header_bytes),
                message.end());
  return result;
}

constexpr std::span<const std::uint32_t> kWorkedExamples[] = {
    golden::kE1, golden::kE1r, golden::kE2, golden::kE2p, golden::kE3,  golden::kE3a,  golden::kE3b,
    golden::kE4, golden::kE5,  golden::kE6, golden::kE7,  golden::kE10, golden::kE10r, golden::kE11};

TEST(V1Codec, V1_001_V1_002_V1_014_V1_015_V1_016_V1_017_worked_examples_survive_decode_and_encode_F_23) {
  for (const auto vector : kWorkedExamples) {
    const Bytes message = bytes_of(vector);
    EXPECT_EQ(round_trip(message), message) << std::hex << vector[0] << " with " << vector.size() << " words";
  }
}

TEST(V1Codec, V1_006_V1_008_V1_007_sizes_are_those_of_the_format) {
  EXPECT_EQ(v1::decode(bytes_of(golden::kE1)).header.header_bytes, 28u);
  EXPECT_EQ(v1::decode(bytes_of(golden::kE2)).header.header_bytes, 76u);
  EXPECT_EQ(v1::decode(bytes_of(golden::kE3)).header.header_bytes, 128u);
  EXPECT_EQ(v1::decode(bytes_of(golden::kE4)).header.header_bytes, 76u);
  EXPECT_EQ(v1::decode(bytes_of(golden::kE5)).header.header_bytes, 120u);
  EXPECT_EQ(bytes_of(golden::kE6).size(), v1::kErrVersBytes);
  EXPECT_EQ(bytes_of(golden::kE7).size(), v1::kErrChunkBytes);
}

/// Returns whether decode() accepts the message as plain.
bool is_plain_by_decode(const Bytes& message) {
  const auto [status, header] = v1::decode(message);
  if (status != v1::Decode::Ok || header.procedure != v1::Procedure::Msg || !header.chunks.empty())
    return false;
  xdr::Reader payload{std::span(message).subspan(header.header_bytes)};
  const bool same_xid = static_cast<rpc::Xid>(payload.u32()) == header.fixed.xid;
  return payload.u32() <= static_cast<std::uint32_t>(rpc::MessageType::Reply) && same_xid && payload.ok();
}

TEST(V1Codec, plain_messages_are_those_without_chunks_with_an_rpc_message_and_encode_to_the_same_bytes) {
  std::size_t plain = 0;
  const auto check = [&plain](const Bytes& message) {
    ASSERT_EQ(v1::is_plain(message), is_plain_by_decode(message));
    if (!v1::is_plain(message)) return;
    ++plain;
    const v1::Header header = v1::decode(message).header;
    EXPECT_EQ(header.header_bytes, kMinMsgHeaderBytes);
    EXPECT_EQ(v1::plain_response(message.data()), xdr::load_u32(&message[kMinMsgHeaderBytes + xdr::kUnit]) ==
                                                      static_cast<std::uint32_t>(rpc::MessageType::Reply));
    const FixedHeader& fixed = header.fixed;
    const Bytes words(message.begin(), message.begin() + kMinMsgHeaderBytes);
    Bytes again(kMinMsgHeaderBytes);
    v1::store_plain_call(again.data(), fixed.xid, fixed.credits);
    EXPECT_EQ(again, words);
    Bytes reply(kMinMsgHeaderBytes);
    v1::store_plain_reply(reply.data(), fixed.xid, fixed.credits);
    EXPECT_EQ(reply, words);
  };
  for (const auto vector : kWorkedExamples) {
    const Bytes message = bytes_of(vector);
    for (std::size_t bytes = 0; bytes <= message.size(); ++bytes)
      check(Bytes(message.begin(), message.begin() + static_cast<std::ptrdiff_t>(bytes)));
    for (std::size_t at = 0; at < std::min<std::size_t>(message.size(), 40); ++at)
      for (const int change : {0x01, 0x02, 0x03, 0x04, 0x80}) {
        Bytes changed = message;
        changed[at] ^= static_cast<std::byte>(change);
        check(changed);
      }
    check_two_words_changed(message, check);
  }
  EXPECT_GT(plain, 50u) << "of both kinds there are many";
}

TEST(V1Codec, V1_012_V1_077_F_25_position_counts_from_the_rpc_message) {
  const Bytes message = bytes_of(golden::kE2);
  const auto decoded = v1::decode(message);
  ASSERT_EQ(decoded.header.chunks.reads.size(), 2u);
  for (std::uint32_t i = 0; i < 2; ++i) EXPECT_EQ(decoded.header.chunks.reads[i].position, Position{96});
  EXPECT_EQ(decoded.header.chunks.reads[0].target.length + decoded.header.chunks.reads[1].target.length,
            5001u);
  EXPECT_EQ(decoded.header.header_bytes + 96, message.size());  // immediately after the count word
}

TEST(V1Codec, V1_017_extreme_offsets_round_trip) {
  for (const std::uint64_t offset : {std::uint64_t{0}, std::uint64_t{1} << 32, ~std::uint64_t{0}}) {
    const Segment segment{rdma::Rkey{0xFFFFFFFF}, 0xFFFFFFFF, offset};
    const ReadSegment read{Position{0}, segment};
    Bytes out(256);
    xdr::Writer writer(out);
    v1::encode_call(writer, rpc::Xid{1}, Credits{1}, v1::Procedure::NoMsg, {{&read, 1}, {}, std::nullopt});
    const auto decoded = v1::decode(writer.written());
    ASSERT_EQ(decoded.status, v1::Decode::Ok);
    EXPECT_EQ(decoded.header.chunks.reads[0].target.offset, offset);
    EXPECT_EQ(decoded.header.chunks.reads[0].target.length, 0xFFFFFFFFu);
  }
}

TEST(V1Codec, V1_018_V1_025_errors_of_any_version_decode) {
  for (const std::uint32_t version : {1u, 2u, 7u}) {
    Bytes message = bytes_of(golden::kE6);
    xdr::store_u32(message.data() + 4, version);
    const auto decoded = v1::decode(message);
    ASSERT_EQ(decoded.status, v1::Decode::Ok);
    EXPECT_EQ(decoded.header.error, v1::ErrorCode::Vers);
    EXPECT_EQ(decoded.header.fixed.xid, rpc::Xid{0x1A2B3C52});
    EXPECT_EQ(decoded.header.supported.low, 1u);
  }
}

TEST(V1Codec, V1_013_V1_020_V1_021_V1_028_negative_vectors_are_told_apart) {
  using D = v1::Decode;
  EXPECT_EQ(v1::decode(bytes_of(golden::kN1)).status, D::Fragment);
  EXPECT_EQ(v1::decode(bytes_of(golden::kN2)).status, D::BadVersion);
  EXPECT_EQ(v1::decode(bytes_of(golden::kN3)).status, D::BadProcedure);
  EXPECT_EQ(v1::decode(bytes_of(golden::kN4)).status, D::BadChunks);
  EXPECT_EQ(v1::decode(bytes_of(golden::kN5)).status, D::BadChunks);
  EXPECT_EQ(v1::decode(bytes_of(golden::kN6)).status, D::BadChunks);
  EXPECT_EQ(v1::decode(bytes_of(golden::kN12)).status, D::BadChunks);
  EXPECT_EQ(v1::decode(bytes_of(golden::kN15)).status, D::BadError);
  EXPECT_EQ(v1::decode(bytes_of(golden::kN16)).status, D::BadError);
  EXPECT_EQ(v1::decode(bytes_of(golden::kN17)).status, D::BadError);
}

TEST(V1Codec, V1_020_trailing_bytes_of_headers_without_payload_are_ignored) {
  for (const auto vector : {std::span<const std::uint32_t>(golden::kE4), {golden::kE7}}) {
    Bytes message = bytes_of(vector);
    const std::size_t header = message.size();
    message.resize(message.size() + 32, std::byte{0xEE});
    const auto decoded = v1::decode(message);
    EXPECT_EQ(decoded.status, v1::Decode::Ok);
    EXPECT_EQ(decoded.header.header_bytes, header);
  }
}

TEST(V1Codec, V1_023_version_is_judged_before_anything_else) {
  Bytes message = bytes_of(golden::kN2);
  std::mt19937 random(1);
  for (int round = 0; round < 1000; ++round) {
    for (std::size_t i = 16; i < message.size(); ++i) message[i] = static_cast<std::byte>(random());
    ASSERT_EQ(v1::decode(message).status, v1::Decode::BadVersion);
  }
}

TEST(V1Codec, V1_024_errors_echo_xid_and_version_of_the_failing_message) {
  Bytes out(64);
  xdr::Writer writer(out);
  v1::encode_err_vers(writer, v1::decode(bytes_of(golden::kN2)).header.fixed, Credits{16});
  EXPECT_EQ(Bytes(writer.written().begin(), writer.written().end()), bytes_of(golden::kE6));
  xdr::Writer chunk(out);
  v1::encode_err_chunk(chunk, v1::decode(bytes_of(golden::kN3)).header.fixed, Credits{16});
  EXPECT_EQ(Bytes(chunk.written().begin(), chunk.written().end()), bytes_of(golden::kE7));
}

TEST(V1Codec, V1_090_V1_095_V1_096_V1_097_V1_124_reply_returns_the_chunks_with_new_lengths) {
  const Bytes call = bytes_of(golden::kE3);
  const auto decoded = v1::decode(call);
  const std::uint64_t written[] = {1501};
  const v1::ReplyChunks chunks{decoded.header.chunks.writes, written, decoded.header.chunks.reply, 36};
  Bytes out(v1::header_bytes(chunks));
  xdr::Writer writer(out);
  v1::encode_reply(writer, decoded.header.fixed.xid, Credits{16}, v1::Procedure::NoMsg, chunks);
  ASSERT_TRUE(writer.ok());
  EXPECT_EQ(out, bytes_of(golden::kE3a));

  const v1::ReplyChunks unused{decoded.header.chunks.writes, written, decoded.header.chunks.reply, 0};
  xdr::Writer inline_writer(out);
  v1::encode_reply(inline_writer, decoded.header.fixed.xid, Credits{16}, v1::Procedure::Msg, unused);
  const Bytes expected = bytes_of(golden::kE3b);
  EXPECT_TRUE(std::equal(out.begin(), out.end(), expected.begin()));
}

TEST(V1Codec, V1_004_V1_019_V1_131_V1_134_only_defined_values_are_emitted) {
  for (const v1::Procedure procedure : {v1::Procedure::Msg, v1::Procedure::NoMsg}) {
    Bytes out(64);
    xdr::Writer writer(out);
    v1::encode_call(writer, rpc::Xid{9}, Credits{3}, procedure, {});
    EXPECT_EQ(xdr::load_u32(out.data() + 4), 1u);
    EXPECT_LE(xdr::load_u32(out.data() + 12), 1u);
  }
  const FixedHeader failing{rpc::Xid{9}, 1, Credits{1}, 7};
  Bytes out(64);
  xdr::Writer writer(out);
  v1::encode_err_chunk(writer, failing, Credits{3});
  EXPECT_EQ(xdr::load_u32(out.data() + 12), 4u);
  EXPECT_EQ(xdr::load_u32(out.data() + 16), 2u);
}

// --- Messages of real peers

std::vector<Bytes> captured_messages() {
  std::ifstream file(SLUICE_CAPTURED_MESSAGES);
  std::vector<Bytes> messages;
  for (std::string line; std::getline(file, line);) {
    Bytes message;
    for (std::size_t i = 0; i + 1 < line.size(); i += 2)
      message.push_back(static_cast<std::byte>(std::stoul(line.substr(i, 2), nullptr, 16)));
    messages.push_back(message);
  }
  return messages;
}

TEST(V1Codec, V1_002_V1_005_what_linux_kernels_sent_decodes_and_encodes_to_the_same_bytes) {
  const auto messages = captured_messages();
  ASSERT_GT(messages.size(), 40u);
  int calls = 0;
  int replies = 0;
  for (const Bytes& message : messages) {
    EXPECT_EQ(round_trip(message), message);
    const auto decoded = v1::decode(message);
    if (decoded.header.procedure != v1::Procedure::Msg) continue;
    const auto payload = std::span(message).subspan(decoded.header.header_bytes);
    EXPECT_EQ(xdr::load_u32(payload.data()), static_cast<std::uint32_t>(decoded.header.fixed.xid));
    xdr::Reader reader(payload);
    if (xdr::load_u32(payload.data() + 4) == 0) {
      ++calls;
      rpc::CallHeader header;
      EXPECT_EQ(rpc::decode_call(reader, header), rpc::CallDecode::Ok);
    } else {
      ++replies;
      EXPECT_TRUE(rpc::decode_reply(reader).ok);
    }
  }
  EXPECT_GT(calls, 20);
  EXPECT_GT(replies, 5);
}

// --- Comparison with rpcgen

bool rpcgen_accepts(const Bytes& message, rv1_message& decoded, std::uint32_t& consumed) {
  XDR xdrs;
  Bytes copy = message;
  xdrmem_create(&xdrs, reinterpret_cast<char*>(copy.data()), static_cast<u_int>(copy.size()), XDR_DECODE);
  decoded = {};
  const bool ok = xdr_rv1_message(&xdrs, &decoded) != 0;
  consumed = xdr_getpos(&xdrs);
  return ok;
}

void rpcgen_free(rv1_message& decoded) {
  xdr_free(reinterpret_cast<xdrproc_t>(reinterpret_cast<void (*)()>(&xdr_rv1_message)), &decoded);
}

bool has_odd_discriminator(const Bytes& message) {
  // libtirpc accepts any non-zero word as true; the codec does not.
  for (std::size_t i = 16; i + 4 <= message.size(); i += 4)
    if (xdr::load_u32(message.data() + i) > 1) return true;
  return false;
}

void expect_same_fields(const v1::Header& ours, const rv1_lists& theirs) {
  const rv1_read_list* read = theirs.reads;
  for (std::uint32_t i = 0; i < ours.chunks.reads.size(); ++i, read = read->next) {
    ASSERT_NE(read, nullptr);
    EXPECT_EQ(static_cast<std::uint32_t>(ours.chunks.reads[i].position), read->entry.position);
    EXPECT_EQ(static_cast<std::uint32_t>(ours.chunks.reads[i].target.handle), read->entry.target.handle);
    EXPECT_EQ(ours.chunks.reads[i].target.length, read->entry.target.length);
    EXPECT_EQ(ours.chunks.reads[i].target.offset, read->entry.target.offset);
  }
  EXPECT_EQ(read, nullptr);
  const rv1_write_list* write = theirs.writes;
  for (const WriteChunk chunk : ours.chunks.writes) {
    ASSERT_NE(write, nullptr);
    ASSERT_EQ(chunk.size(), write->entry.target.target_len);
    for (std::uint32_t i = 0; i < chunk.size(); ++i)
      EXPECT_EQ(chunk[i].offset, write->entry.target.target_val[i].offset);
    write = write->next;
  }
  EXPECT_EQ(write, nullptr);
  EXPECT_EQ(ours.chunks.reply.has_value(), theirs.reply != nullptr);
}

Bytes random_header(std::mt19937_64& random) {
  std::vector<ReadSegment> reads(random() % 5);
  for (auto& read : reads)
    read = {static_cast<Position>(random() % 64 * 4),
            {static_cast<rdma::Rkey>(random()), static_cast<std::uint32_t>(random()), random()}};
  std::vector<std::vector<Segment>> writes(random() % 4);
  std::vector<std::span<const Segment>> spans;
  for (auto& chunk : writes) {
    chunk.resize(random() % 4);
    for (auto& segment : chunk)
      segment = {static_cast<rdma::Rkey>(random()), static_cast<std::uint32_t>(random()), random()};
    spans.emplace_back(chunk);
  }
  std::vector<Segment> reply(random() % 3);
  v1::CallChunks chunks{reads, spans, std::nullopt};
  if (random() % 2) chunks.reply = reply;
  Bytes out(4096);
  xdr::Writer writer(out);
  v1::encode_call(writer, static_cast<rpc::Xid>(random()), static_cast<Credits>(random()),
                  random() % 2 ? v1::Procedure::Msg : v1::Procedure::NoMsg, chunks);
  out.resize(writer.position());
  return out;
}

void compare_with_rpcgen(const Bytes& message) {
  const auto ours = v1::decode(message);
  // rpcgen's code reads as many elements as an invalid count word says.
  if (ours.status == v1::Decode::BadChunks && has_odd_discriminator(message)) return;
  rv1_message theirs;
  std::uint32_t consumed = 0;
  const bool accepted = rpcgen_accepts(message, theirs, consumed);
  if (ours.status == v1::Decode::Ok) {
    ASSERT_TRUE(accepted);
    EXPECT_EQ(consumed, ours.header.header_bytes);
    EXPECT_EQ(theirs.xid, static_cast<std::uint32_t>(ours.header.fixed.xid));
    if (ours.header.procedure == v1::Procedure::Msg)
      expect_same_fields(ours.header, theirs.body.rv1_body_u.msg);
    if (ours.header.procedure == v1::Procedure::NoMsg)
      expect_same_fields(ours.header, theirs.body.rv1_body_u.nomsg);
  } else if (ours.status == v1::Decode::BadChunks) {
    EXPECT_FALSE(accepted);
  }
  rpcgen_free(theirs);
}

TEST(V1Codec, V1_002_F_24_agrees_with_rpcgen_on_random_headers) {
  std::mt19937_64 random(7);
  for (int i = 0; i < 20000; ++i) {
    const Bytes message = random_header(random);
    ASSERT_EQ(v1::decode(message).status, v1::Decode::Ok);
    compare_with_rpcgen(message);
    if (HasFatalFailure()) return;
  }
}

TEST(V1Codec, V1_146_agrees_with_rpcgen_on_mutated_headers) {
  std::mt19937_64 random(8);
  for (int i = 0; i < 50000; ++i) {
    Bytes message = random_header(random);
    for (std::uint64_t n = random() % 4; n > 0 && !message.empty(); --n) {
      const std::size_t word = random() % (message.size() / 4) * 4;
      if (word >= 4 && word < 8) continue;  // the rpcgen code does not handle other versions
      if (random() % 2)
        message[word + random() % 4] = static_cast<std::byte>(random());
      else
        xdr::store_u32(message.data() + word, static_cast<std::uint32_t>(random() % 3));
    }
    if (random() % 4 == 0) message.resize(random() % (message.size() + 1));
    if (message.size() % 4 == 0) compare_with_rpcgen(message);
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace sluice::rpcrdma
