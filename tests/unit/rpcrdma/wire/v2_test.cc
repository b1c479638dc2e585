// SPDX-License-Identifier: Apache-2.0
//
// The version 2 codec, compared with the worked examples, all truncations of them, and code made by rpcgen.
// Test names contain only the requirements that a codec can demonstrate alone; the others require an
// endpoint.
#include <gtest/gtest.h>
#include <rpc/rpc.h>

#include <algorithm>
#include <cstdlib>
#include <random>
#include <vector>

#include "dataplane/rpcrdma/wire/v1.h"
#include "dataplane/rpcrdma/wire/v2.h"
#include "rpcrdma_v2.h"
#include "tests/golden/v2_vectors.h"
#include "tests/unit/rpcrdma/wire/changed.h"

namespace sluice::rpcrdma::v2 {
namespace {

using Bytes = std::vector<std::byte>;
namespace golden = sluice::golden::v2;

Bytes bytes_of(std::span<const std::uint32_t> words) {
  Bytes bytes(words.size() * 4);
  for (std::size_t i = 0; i < words.size(); ++i) xdr::store_u32(bytes.data() + i * 4, words[i]);
  return bytes;
}

/// Copies of the chunk lists of a decoded header, for encoding them again.
struct Owned {
  std::vector<ReadSegment> reads;
  std::vector<std::vector<Segment>> writes;
  std::vector<std::span<const Segment>> spans;
  std::vector<Segment> reply;
  CallChunks chunks;
  explicit Owned(const ChunkLists& lists) {
    for (std::uint32_t i = 0; i < lists.reads.size(); ++i) reads.push_back(lists.reads[i]);
    for (const WriteChunk chunk : lists.writes) {
      writes.emplace_back();
      for (std::uint32_t i = 0; i < chunk.size(); ++i) writes.back().push_back(chunk[i]);
    }
    spans.assign(writes.begin(), writes.end());
    chunks = {reads, spans, std::nullopt};
    if (!lists.reply) return;
    for (std::uint32_t i = 0; i < lists.reply->size(); ++i) reply.push_back((*lists.reply)[i]);
    chunks.reply = reply;
  }
};

/// Encodes the header of a Msg or NoMsg from its decoded fields, and appends the payload.
Bytes encoded_again(const Bytes& message, const Header& header) {
  const Owned owned(header.chunks);
  Bytes out(header_bytes(owned.chunks));
  xdr::Writer writer(out);
  encode_call(writer, {header.fixed.xid, header.credit, header.flags}, header.type, header.invalidate,
              owned.chunks);
  EXPECT_TRUE(writer.ok());
  EXPECT_EQ(writer.position(), header.header_bytes);
  out.insert(out.end(), message.begin() + static_cast<std::ptrdiff_t>(header.header_bytes), message.end());
  return out;
}

std::vector<Bytes> messages_with_chunk_fields() {
  return {bytes_of(golden::kA),  bytes_of(golden::kB), bytes_of(golden::kC1),
          bytes_of(golden::kC2), bytes_of(golden::kD), bytes_of(golden::kE),
          bytes_of(golden::kF),  bytes_of(golden::kI), bytes_of(golden::kJ)};
}

TEST(V2Codec, examples_decode_and_encode_to_the_same_bytes) {
  for (const Bytes& message : messages_with_chunk_fields()) {
    const auto decoded = decode(message);
    ASSERT_EQ(decoded.status, Decode::Ok);
    EXPECT_EQ(encoded_again(message, decoded.header), message);
  }
}

/// Returns whether decode() accepts the message as plain.
bool is_plain_by_decode(const Bytes& message) {
  const auto [status, header] = decode(message);
  if (status != Decode::Ok || header.type != HeaderType::Msg || header.more() || !header.chunks.empty() ||
      header.invalidate != rdma::Rkey{})
    return false;
  xdr::Reader payload{std::span(message).subspan(header.header_bytes)};
  const bool same_xid = static_cast<rpc::Xid>(payload.u32()) == header.fixed.xid;
  const auto type = header.response() ? rpc::MessageType::Reply : rpc::MessageType::Call;
  return payload.u32() == static_cast<std::uint32_t>(type) && same_xid && payload.ok();
}

TEST(V2Codec, plain_messages_are_those_in_one_piece_with_an_rpc_message_and_nothing_else) {
  std::size_t plain = 0;
  const auto check = [&plain](const Bytes& message) {
    ASSERT_EQ(is_plain(message), is_plain_by_decode(message));
    if (!is_plain(message)) return;
    ++plain;
    const Header header = decode(message).header;
    const FixedHeader quick = load_plain(message.data());
    EXPECT_EQ(header.header_bytes, kMinMsgHeaderBytes);
    EXPECT_EQ(quick.xid, header.fixed.xid);
    EXPECT_EQ(quick.credits, header.fixed.credits);
    EXPECT_EQ(plain_credit(message.data()), header.credit);
    EXPECT_EQ(plain_response(message.data()), header.response());
    Bytes expected(kMinMsgHeaderBytes);
    xdr::Writer call(expected);
    encode_call(call, {header.fixed.xid, header.credit, 0}, HeaderType::Msg, {}, {});
    Bytes stored(kMinMsgHeaderBytes);
    store_plain_call(stored.data(), header.fixed.xid, header.credit);
    EXPECT_EQ(stored, expected);
    xdr::Writer reply(expected);
    encode_reply(reply, {header.fixed.xid, header.credit, 0}, HeaderType::Msg, {});
    store_plain_reply(stored.data(), header.fixed.xid, header.credit);
    EXPECT_EQ(stored, expected);
  };
  for (const Bytes& message : messages_with_chunk_fields()) {
    // Messages are truncated everywhere, and each byte of the header is changed in several ways.
    for (std::size_t bytes = 0; bytes <= message.size(); ++bytes)
      check(Bytes(message.begin(), message.begin() + static_cast<std::ptrdiff_t>(bytes)));
    for (std::size_t at = 0; at < std::min<std::size_t>(message.size(), 48); ++at)
      for (const int change : {0x01, 0x02, 0x03, 0x04, 0x80}) {
        Bytes changed = message;
        changed[at] ^= static_cast<std::byte>(change);
        check(changed);
      }
    check_two_words_changed(message, check);
  }
  EXPECT_GT(plain, 100u) << "of both kinds there are many";
}

TEST(V2Codec, V2_033_the_credit_word_is_an_increment_below_a_bound) {
  const CreditWord word{63, 64};
  EXPECT_EQ(word.word(), 0x0040003Fu);
  EXPECT_EQ(CreditWord::of(0x0040003F), word);
  EXPECT_EQ(decode(bytes_of(golden::kB)).header.credit, (CreditWord{127, 128}));
}

TEST(V2Codec, examples_say_what_they_are_for) {
  const auto call = decode(bytes_of(golden::kA)).header;
  EXPECT_FALSE(call.response());
  EXPECT_EQ(call.header_bytes, 36u);
  EXPECT_TRUE(decode(bytes_of(golden::kB)).header.response());
  const auto part = decode(bytes_of(golden::kC1)).header;
  EXPECT_TRUE(part.more());
  EXPECT_FALSE(decode(bytes_of(golden::kC2)).header.more());
  const Bytes read_message = bytes_of(golden::kD);  // headers are views of the message
  const auto read = decode(read_message).header;
  EXPECT_EQ(read.invalidate, rdma::Rkey{0x8A01});
  EXPECT_EQ(read.header_bytes, 60u);
  EXPECT_EQ((*read.chunks.writes.begin())[0].length, 4096u);
  const Bytes read_reply = bytes_of(golden::kE);
  EXPECT_EQ((*decode(read_reply).header.chunks.writes.begin()).capacity(), 1001u);
  const Bytes long_message = bytes_of(golden::kI);
  const auto long_call = decode(long_message).header;
  EXPECT_EQ(long_call.type, HeaderType::NoMsg);
  EXPECT_EQ(long_call.chunks.reads.size(), 2u);
  EXPECT_EQ(long_call.chunks.reply->capacity(), 16384u);
  EXPECT_FALSE(long_call.grant_only());
}

TEST(V2Codec, a_grant_is_known_by_its_empty_lists_alone) {
  Bytes grant(kMinMsgHeaderBytes);
  xdr::Writer writer(grant);
  encode_grant(writer, {32, 128});
  EXPECT_EQ(grant, bytes_of(golden::kF));
  xdr::store_u32(grant.data(), 77);      // any XID
  xdr::store_u32(grant.data() + 20, 5);  // any handle
  const auto decoded = decode(grant);
  ASSERT_EQ(decoded.status, Decode::Ok);
  EXPECT_TRUE(decoded.header.grant_only());
}

TEST(V2Codec, a_reply_returns_the_chunks_with_the_lengths_written) {
  const Bytes call = bytes_of(golden::kD);
  const auto decoded = decode(call);
  const std::uint64_t written[] = {1001};
  const ReplyChunks chunks{decoded.header.chunks.writes, written, decoded.header.chunks.reply, 0};
  Bytes reply(header_bytes(chunks));
  xdr::Writer writer(reply);
  encode_reply(writer, {decoded.header.fixed.xid, {1, 128}}, HeaderType::Msg, chunks);
  const Bytes expected = bytes_of(golden::kE);
  EXPECT_EQ(reply, Bytes(expected.begin(), expected.begin() + 60));
}

TEST(V2Codec, each_error) {
  const auto expect = [](std::span<const std::uint32_t> words, const Error& error) {
    const Bytes message = bytes_of(words);
    const auto decoded = decode(message);
    ASSERT_EQ(decoded.status, Decode::Ok);
    EXPECT_EQ(decoded.header.type, HeaderType::Error);
    EXPECT_TRUE(decoded.header.response());
    EXPECT_EQ(decoded.header.error.code, error.code);
    EXPECT_EQ(decoded.header.error.maximum, error.maximum);
    EXPECT_EQ(decoded.header.error.chunk_index, error.chunk_index);
    EXPECT_EQ(decoded.header.error.bytes_needed, error.bytes_needed);
    EXPECT_EQ(decoded.header.header_bytes, message.size());
    Bytes out(message.size());
    xdr::Writer writer(out);
    encode_error(writer, rpc::Xid{0x11223348}, 128, error);
    EXPECT_EQ(out, message);
  };
  expect(golden::kL2, {.code = ErrorCode::BadXdr, .supported = {}});
  expect(golden::kL3, {.code = ErrorCode::InvalHtype, .supported = {}});
  expect(golden::kL4, {.code = ErrorCode::InvalFlag, .supported = {}});
  expect(golden::kL5, {.code = ErrorCode::ReadChunks, .supported = {}, .maximum = 1});
  expect(golden::kL6, {.code = ErrorCode::WriteChunks, .supported = {}, .maximum = 1});
  expect(golden::kL7, {.code = ErrorCode::Segments, .supported = {}, .maximum = 16});
  expect(golden::kL8,
         {.code = ErrorCode::WriteResource, .supported = {}, .chunk_index = 1, .bytes_needed = 1u << 20});
  expect(golden::kL9, {.code = ErrorCode::ReplyResource, .supported = {}, .bytes_needed = 9120});
  expect(golden::kL10, {.code = ErrorCode::System, .supported = {}});
}

TEST(V2Codec, a_version_error_is_understood_in_both_forms_while_the_version_is_open) {
  const Bytes rfc8166 = bytes_of(golden::kL1);
  auto decoded = decode(rfc8166, Negotiation::Open);
  ASSERT_EQ(decoded.status, Decode::Ok);
  EXPECT_EQ(decoded.header.error.code, ErrorCode::Vers);
  EXPECT_EQ(decoded.header.error.supported.low, 1u);
  EXPECT_EQ(decoded.header.error.supported.high, 2u);
  decoded = decode(bytes_of(golden::kL1V), Negotiation::Open);
  ASSERT_EQ(decoded.status, Decode::Ok);
  EXPECT_EQ(decoded.header.error.supported.high, 2u);
  // Answer of Linux knfsd, and the answer with its own version in it.
  Bytes knfsd = bytes_of(std::vector<std::uint32_t>{0x11223344, 2, 32, 4, 1, 1, 1});
  for (const std::uint32_t version : {1u, 2u}) {
    xdr::store_u32(knfsd.data() + 4, version);
    decoded = decode(knfsd, Negotiation::Open);
    ASSERT_EQ(decoded.status, Decode::Ok);
    EXPECT_EQ(decoded.header.error.supported.high, 1u);
  }
  // After the version is negotiated, these bytes are a truncated ERR_VERS of version 2.
  EXPECT_EQ(decode(knfsd).status, Decode::BadError);
  EXPECT_EQ(decode(bytes_of(std::vector<std::uint32_t>{5, 2, 32, 4, 2}), Negotiation::Open).status,
            Decode::NoVersion2);
  Bytes ours(28);
  xdr::Writer writer(ours);
  v1::encode_err_vers(writer, load_fixed(rfc8166.data()), Credits{32}, {1, 2});
  EXPECT_EQ(ours, rfc8166);
}

TEST(V2Codec, faults_are_found_in_their_order) {
  Bytes message = bytes_of(golden::kD);
  const auto with = [&](std::size_t word, std::uint32_t value) {
    Bytes spoiled = message;
    xdr::store_u32(spoiled.data() + word * 4, value);
    return spoiled;
  };
  for (std::size_t bytes = 0; bytes < 20; ++bytes)
    EXPECT_EQ(decode(std::span(message).first(bytes)).status, Decode::Fragment);
  EXPECT_EQ(decode(with(1, 9)).status, Decode::BadVersion);
  const Bytes strange = with(1, 9);
  EXPECT_EQ(decode(std::span(strange).first(16)).status, Decode::BadVersion);
  for (const std::uint32_t type : {2u, 3u, 6u, 8u, 10u, 0xFFFFFFFFu})
    EXPECT_EQ(decode(with(3, type)).status, Decode::BadType);
  for (const std::uint32_t flags : {4u, 0x80000000u, 0xFFFFFFFEu})
    EXPECT_EQ(decode(with(4, flags)).status, Decode::BadFlags);
  EXPECT_EQ(decode(with(4, kMore)).status, Decode::BadFlags);  // MORE with chunks
  // Two faults: the earlier check is reported.
  Bytes both = with(1, 9);
  xdr::store_u32(both.data() + 12, 6);
  EXPECT_EQ(decode(both).status, Decode::BadVersion);
  both = with(3, 6);
  xdr::store_u32(both.data() + 16, 4);
  EXPECT_EQ(decode(both).status, Decode::BadType);
  both = with(4, 4);
  xdr::store_u32(both.data() + 24, 7);
  EXPECT_EQ(decode(both).status, Decode::BadFlags);
}

TEST(V2Codec, nothing_stands_behind_a_nomsg_and_no_part_is_empty) {
  Bytes grant = bytes_of(golden::kF);
  grant.resize(grant.size() + 4);
  EXPECT_EQ(decode(grant).status, Decode::BadXdr);
  Bytes part = bytes_of(golden::kC1);
  part.resize(36);
  EXPECT_EQ(decode(part).status, Decode::BadXdr);
  part.resize(37);
  EXPECT_EQ(decode(part).status, Decode::Ok);
}

TEST(V2Codec, every_truncation_of_a_header_is_bad_xdr) {
  for (const Bytes& message : {bytes_of(golden::kD), bytes_of(golden::kI), bytes_of(golden::kJ)}) {
    const std::size_t header = decode(message).header.header_bytes;
    for (std::size_t bytes = 20; bytes < header; ++bytes) {
      const Bytes cut(message.begin(), message.begin() + static_cast<std::ptrdiff_t>(bytes));
      EXPECT_EQ(decode(cut).status, Decode::BadXdr) << bytes;
    }
  }
  Bytes message = bytes_of(golden::kD);
  for (const std::uint32_t discriminator : {2u, 0xFFFFFFFFu}) {
    xdr::store_u32(message.data() + 24, discriminator);
    EXPECT_EQ(decode(message).status, Decode::BadXdr);
  }
  message = bytes_of(golden::kD);
  xdr::store_u32(message.data() + 32, 0x10000000);
  EXPECT_EQ(decode(message).status, Decode::BadXdr);
}

// --- Properties

std::optional<Properties> properties_in(std::span<const std::byte> message) {
  const auto decoded = decode(message);
  EXPECT_EQ(decoded.status, Decode::Ok);
  return decode_properties(decoded.header.properties);
}

TEST(V2Properties, V2_052_examples) {
  const Bytes three = bytes_of(golden::kG);
  const auto some = properties_in(three);
  ASSERT_TRUE(some);
  EXPECT_EQ(some->max_send_bytes, 65536u);
  EXPECT_EQ(some->receive_buffer_bytes, 65536u);
  EXPECT_EQ(some->max_segment_bytes, 1u << 20);
  EXPECT_EQ(some->max_segments, 16u);
  EXPECT_EQ(some->reverse, ReverseSupport::General);
  const Bytes odd = bytes_of(golden::kH);
  const auto others = properties_in(odd);
  ASSERT_TRUE(others);
  EXPECT_EQ(others->receive_buffer_bytes, 4096u);
  ASSERT_TRUE(others->host_authentication);
  EXPECT_EQ(others->host_authentication->size(), 5u);
  EXPECT_EQ((*others->host_authentication)[4], std::byte{5});
  const auto none = decode_properties(bytes_of(std::vector<std::uint32_t>{0}));
  ASSERT_TRUE(none);
  EXPECT_EQ(none->max_send_bytes, 4096u);
}

TEST(V2Properties, parts_are_joined_before_they_are_decoded) {
  const Bytes first = bytes_of(golden::kK1);
  const Bytes second = bytes_of(golden::kK2);
  ASSERT_TRUE(decode(first).header.more());
  Bytes body(first.begin() + 20, first.end());
  EXPECT_FALSE(decode_properties(body));
  body.insert(body.end(), second.begin() + 20, second.end());
  const auto joined = decode_properties(body);
  ASSERT_TRUE(joined);
  ASSERT_EQ(joined->host_authentication->size(), 20u);
  EXPECT_EQ((*joined->host_authentication)[19], std::byte{0x14});
}

TEST(V2Properties, what_does_not_fit_is_refused_whole) {
  const auto of = [](std::vector<std::uint32_t> words) {
    return decode_properties(bytes_of(words)).has_value();
  };
  EXPECT_TRUE(of({1, 2, 4, 8192}));
  EXPECT_FALSE(of({1, 2, 3, 0x01020300}));              // three octets
  EXPECT_FALSE(of({1, 2, 5, 1, 0}));                    // five
  EXPECT_FALSE(of({1, 6, 8, 5, 1}));                    // inner length beyond the outer
  EXPECT_FALSE(of({1, 6, 12, 2, 1, 0}));                // inner length short of the outer
  EXPECT_FALSE(of({1, 77, 0xFFFFFFF0}));                // past the end, for unknown ones too
  EXPECT_FALSE(of({0x20000000}));                       // an impossible count
  EXPECT_FALSE(of({1, 2, 4, 1, 0}));                    // octets left over
  EXPECT_FALSE(of({2, 2, 4, 1, 2, 4, 1}));              // a known id twice
  EXPECT_TRUE(of({3, 0, 0, 0xFFFFFFFF, 4, 1, 77, 0}));  // unknown ones
  const auto odd = decode_properties(bytes_of(std::vector<std::uint32_t>{1, 5, 4, 77}));
  ASSERT_TRUE(odd);
  EXPECT_EQ(odd->reverse, ReverseSupport::Inline);
}

TEST(V2Properties, what_is_encoded_decodes_to_the_same) {
  const std::array<std::byte, 7> secret{std::byte{9}, std::byte{8}};
  const Parameters parameters{.max_send_bytes = 8192,
                              .receive_buffer_bytes = 16384,
                              .max_segment_bytes = 65536,
                              .max_segments = 4,
                              .reverse = ReverseSupport::None};
  const auto encoded = [](auto&& body) {
    Bytes message(256);
    xdr::Writer writer(message);
    encode_connprop(writer, {rpc::Xid{1}, {3, 4}});
    body(writer);
    message.resize(writer.position());
    return message;
  };
  const Bytes with_parameters = encoded([&](xdr::Writer& writer) { encode_parameters(writer, parameters); });
  auto back = properties_in(with_parameters);
  ASSERT_TRUE(back);
  EXPECT_EQ(static_cast<const Parameters&>(*back), parameters);
  EXPECT_FALSE(back->host_authentication);
  const Bytes with_secret = encoded([&](xdr::Writer& writer) { encode_host_authentication(writer, secret); });
  back = properties_in(with_secret);
  ASSERT_TRUE(back);
  EXPECT_EQ(static_cast<const Parameters&>(*back), Parameters{});
  ASSERT_TRUE(back->host_authentication);
  EXPECT_TRUE(std::equal(secret.begin(), secret.end(), back->host_authentication->begin(),
                         back->host_authentication->end()));
}

// --- Comparison with rpcgen

/// Returns whether rpcgen's code accepts the header. Sets `consumed` to its end, and `canonical` if encoding
/// yields the same bytes, because libtirpc accepts any word but zero as a boolean. Its lists recurse and
/// allocate, so it is for tests only.
bool rpcgen_takes(const Bytes& message, std::uint32_t& consumed, bool& canonical) {
  XDR xdrs;
  Bytes copy = message;
  xdrmem_create(&xdrs, reinterpret_cast<char*>(copy.data()), static_cast<unsigned>(copy.size()), XDR_DECODE);
  rv2_prefix prefix{};
  if (xdr_rv2_prefix(&xdrs, &prefix) == 0) return false;
  bool ok = false;
  const auto body = [&](auto& value, auto filter) {
    ok = filter(&xdrs, &value) != 0;
    consumed = xdr_getpos(&xdrs);
    Bytes again(message.size());
    XDR out;
    xdrmem_create(&out, reinterpret_cast<char*>(again.data()), static_cast<unsigned>(again.size()),
                  XDR_ENCODE);
    canonical = ok && xdr_rv2_prefix(&out, &prefix) != 0 && filter(&out, &value) != 0 &&
                xdr_getpos(&out) == consumed &&
                std::equal(again.begin(), again.begin() + consumed, message.begin());
    xdr_free(reinterpret_cast<xdrproc_t>(reinterpret_cast<void (*)()>(filter)), &value);
  };
  if (prefix.htype == 0 || prefix.htype == 1) {
    rv2_chunks chunks{};
    body(chunks, &xdr_rv2_chunks);
  } else if (prefix.htype == 4) {
    rv2_error error{};
    body(error, &xdr_rv2_error);
  } else if (prefix.htype == 5) {
    rv2_properties properties{};
    body(properties, &xdr_rv2_properties);
  }
  return ok;
}

/// Returns the number of headers to compare. An environment variable selects a longer run.
int differential_headers() {
  const char* asked = std::getenv("SLUICE_DIFFERENTIAL_HEADERS");
  return asked != nullptr ? std::atoi(asked) : 100'000;
}

TEST(V2Codec, agrees_with_rpcgen_on_random_and_mutated_headers) {
  std::vector<Bytes> seeds = messages_with_chunk_fields();
  for (const auto& words :
       {std::span<const std::uint32_t>(golden::kG), std::span<const std::uint32_t>(golden::kH),
        std::span<const std::uint32_t>(golden::kL5), std::span<const std::uint32_t>(golden::kL8),
        std::span<const std::uint32_t>(golden::kL10), std::span<const std::uint32_t>(golden::kL1V)})
    seeds.push_back(bytes_of(words));
  std::mt19937 generator(2);
  const auto random = [&] { return static_cast<std::uint32_t>(generator()); };
  int taken = 0;
  const int rounds = differential_headers();
  for (int round = 0; round < rounds; ++round) {
    Bytes message = seeds[random() % seeds.size()];
    for (std::uint32_t i = random() % 3; i > 0; --i) {
      const std::size_t word = 5 + random() % (message.size() / 4 - 5);
      const std::uint32_t values[] = {0, 1, 2, 4, 16, random()};
      xdr::store_u32(message.data() + word * 4, values[random() % 6]);
    }
    if (random() % 4 == 0) message.resize(20 + random() % (message.size() - 19));
    const auto ours = decode(message);
    std::uint32_t end = 0;
    bool canonical = true;
    const bool theirs = rpcgen_takes(message, end, canonical);
    if (theirs && !canonical) continue;
    const bool taken_by_us = ours.status == Decode::Ok;
    if (ours.header.type == HeaderType::ConnProp && taken_by_us) {
      // rpcgen's code does not interpret properties, so the codec may refuse more of them, but never less.
      if (decode_properties(ours.header.properties)) {
        ASSERT_TRUE(theirs);
      }
      continue;
    }
    // The codec also refuses what the grammar permits: missing or unexpected payload, and too many elements.
    if (ours.status == Decode::TooManySegments || ours.status == Decode::TooManyWrites ||
        ours.status == Decode::BadFlags)
      continue;
    if (theirs && !taken_by_us) {
      const bool nothing_left = end == message.size();
      ASSERT_TRUE(ours.header.type == HeaderType::Msg ? nothing_left : !nothing_left) << "round " << round;
      continue;
    }
    ASSERT_EQ(taken_by_us, theirs) << "round " << round;
    if (!theirs) continue;
    ++taken;
    ASSERT_EQ(ours.header.header_bytes, end);
    if (ours.header.type != HeaderType::Error) {
      ASSERT_EQ(encoded_again(message, ours.header), message);
    }
  }
  EXPECT_GT(taken, rounds / 5);
}

TEST(V2Codec, V2_159_the_first_four_words_are_those_of_every_version) {
  const Bytes message = bytes_of(golden::kA);
  const FixedHeader fixed = load_fixed(message.data());
  EXPECT_EQ(fixed.xid, decode(message).header.fixed.xid);
  EXPECT_EQ(fixed.version, 2u);
  // A version 1 receiver finds the version at its offset, and answers as V1-022 requires.
  EXPECT_EQ(v1::decode(message).status, v1::Decode::BadVersion);
}

}  // namespace
}  // namespace sluice::rpcrdma::v2
