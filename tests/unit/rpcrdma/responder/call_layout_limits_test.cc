// SPDX-License-Identifier: Apache-2.0
//
// Layouts of calls at and just beyond their limits.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "dataplane/rpcrdma/link/config.h"
#include "dataplane/rpcrdma/responder/call_layout.h"
#include "dataplane/rpcrdma/wire/v1.h"

namespace sluice::rpcrdma {
namespace {

struct Read {
  std::uint32_t position;
  std::uint32_t bytes;
};

/// A Read list in wire format, like the codec returns it.
struct Wire {
  explicit Wire(const std::vector<Read>& reads) : bytes(28 + reads.size() * kReadEntryBytes) {
    std::vector<ReadSegment> segments;
    for (const Read& read : reads)
      segments.push_back({static_cast<Position>(read.position), {rdma::Rkey{1}, read.bytes, 0}});
    xdr::Writer writer(bytes);
    v1::encode_call(writer, rpc::Xid{1}, Credits{1}, v1::Procedure::NoMsg, {segments, {}, std::nullopt});
    list = v1::decode(bytes).header.chunks.reads;
  }
  std::vector<std::byte> bytes;
  ReadList list;
};

CallLayout layout_of(const std::vector<Read>& reads, std::uint64_t inline_bytes,
                     std::uint64_t limit = 1 << 20) {
  return lay_out_call(Wire(reads).list, inline_bytes == 0, inline_bytes, limit);
}

TEST(LayoutLimits, V1_089_as_many_positions_as_there_is_room_for) {
  std::vector<Read> reads;
  for (std::uint32_t i = 0; i < kMaxReadPositions; ++i) reads.push_back({40 + 8 * i, 4});
  const CallLayout layout = layout_of(reads, 200);
  EXPECT_EQ(layout.defect, LayoutDefect::None);
  ASSERT_EQ(layout.chunk_count, kMaxReadPositions);
  for (std::uint32_t i = 0; i < kMaxReadPositions; ++i) EXPECT_EQ(layout.chunks[i].position, 40 + 8 * i);
  EXPECT_EQ(layout.stream_bytes, 200u);
  EXPECT_EQ(layout.message_bytes, 200u + 4 * kMaxReadPositions);
  // Additional segments of the same chunk add no chunk, nor does an empty segment.
  reads.push_back({40, 4});
  EXPECT_EQ(layout_of(reads, 200).defect, LayoutDefect::None);
  reads.back().bytes = 5;
  EXPECT_EQ(layout_of(reads, 200).defect, LayoutDefect::BadPosition) << "it overlaps the next";
  reads.back() = {40 + 8 * kMaxReadPositions, 0};
  EXPECT_EQ(layout_of(reads, 200).defect, LayoutDefect::None);
  reads.back().bytes = 4;
  EXPECT_EQ(layout_of(reads, 200).defect, LayoutDefect::BadPosition);
}

TEST(LayoutLimits, V1_078_V1_089_positions_at_the_ends_of_the_message) {
  const auto defect = [](std::uint32_t position) { return layout_of({{position, 4}}, 100).defect; };
  EXPECT_EQ(defect(36), LayoutDefect::BadPosition) << "in the RPC header";
  EXPECT_EQ(defect(40), LayoutDefect::None);
  EXPECT_EQ(defect(100), LayoutDefect::None);
  EXPECT_EQ(defect(104), LayoutDefect::BadPosition);
  for (const std::uint32_t position : {41u, 42u, 43u}) EXPECT_EQ(defect(position), LayoutDefect::Misaligned);
}

TEST(LayoutLimits, V1_089_chunks_next_to_each_other) {
  EXPECT_EQ(layout_of({{40, 5}, {48, 4}}, 100).defect, LayoutDefect::None);
  EXPECT_EQ(layout_of({{40, 9}, {48, 4}}, 100).defect, LayoutDefect::BadPosition);
  // The whole inline part precedes the second chunk.
  EXPECT_EQ(layout_of({{40, 4}, {104, 4}}, 100).defect, LayoutDefect::None);
  EXPECT_EQ(layout_of({{40, 4}, {108, 4}}, 100).defect, LayoutDefect::BadPosition);
}

TEST(LayoutLimits, V1_089_calls_as_long_as_the_limit) {
  // 100 bytes inline and a chunk, including round-up.
  EXPECT_EQ(layout_of({{100, 100}}, 100, 200).defect, LayoutDefect::None);
  EXPECT_EQ(layout_of({{100, 97}}, 100, 200).defect, LayoutDefect::None);
  EXPECT_EQ(layout_of({{100, 101}}, 100, 200).defect, LayoutDefect::TooLong);
  EXPECT_EQ(layout_of({{40, 100}}, 100, 200).defect, LayoutDefect::None);
  EXPECT_EQ(layout_of({{40, 101}}, 100, 200).defect, LayoutDefect::TooLong)
      << "with the inline part that follows it";
  EXPECT_EQ(layout_of({{40, 101}}, 100, 204).defect, LayoutDefect::None);
  EXPECT_EQ(layout_of({{0, 200}}, 0, 200).defect, LayoutDefect::None);
  EXPECT_EQ(layout_of({{0, 201}}, 0, 200).defect, LayoutDefect::TooLong);
  EXPECT_EQ(layout_of({{0, 1}}, 0, 200).defect, LayoutDefect::None);
  EXPECT_EQ(layout_of({{0, 0}}, 0, 200).defect, LayoutDefect::NoPositionZero);
}

TEST(LayoutLimits, V1_112_reads_are_emitted_until_one_is_refused) {
  const Wire wire({{0, 60}, {48, 8}, {48, 4}, {0, 40}});
  const CallLayout layout = lay_out_call(wire.list, true, 0, 1 << 20);
  ASSERT_EQ(layout.defect, LayoutDefect::None);
  struct Emitted {
    std::uint64_t offset;
    std::uint64_t at;
    std::uint32_t bytes;
    bool operator==(const Emitted&) const = default;
  };
  std::vector<Emitted> all;
  EXPECT_TRUE(
      for_each_read(layout, wire.list, [&](const Segment& remote, std::uint64_t at, std::uint32_t bytes) {
        EXPECT_EQ(remote.length, bytes);
        all.push_back({remote.offset, at, bytes});
        return true;
      }));
  // The stream continues after the chunk of 12 bytes.
  EXPECT_EQ(all, (std::vector<Emitted>{{0, 0, 48}, {48, 60, 12}, {0, 48, 8}, {0, 56, 4}, {0, 72, 40}}));
  for (std::size_t most = 0; most < all.size(); ++most) {
    std::size_t count = 0;
    EXPECT_FALSE(for_each_read(layout, wire.list,
                               [&](const Segment&, std::uint64_t, std::uint32_t) { return count++ < most; }));
    EXPECT_EQ(count, most + 1);
  }
}

/// Each byte of the message except for round-up has one source, however the Read list is cut.
TEST(LayoutLimits, V1_089_V1_112_a_long_call_with_as_many_chunks_as_there_is_room_for_is_read_once) {
  constexpr std::uint32_t kStream = 200;
  for (const std::uint32_t cut : {kStream, 40u, 44u, 100u, 1u}) {
    std::vector<Read> reads;
    for (std::uint32_t i = 0; i < kMaxReadPositions; ++i) reads.push_back({40 + 12 * i, 5});
    for (std::uint32_t at = 0; at < kStream && reads.size() < kMaxReadSegments;) {
      const bool last = reads.size() + 1 == kMaxReadSegments;
      const std::uint32_t bytes = last ? kStream - at : std::min(cut, kStream - at);
      reads.push_back({0, bytes});
      at += bytes;
    }
    const Wire wire(reads);
    const CallLayout layout = lay_out_call(wire.list, true, 0, 1 << 20);
    ASSERT_EQ(layout.defect, LayoutDefect::None);
    ASSERT_EQ(layout.message_bytes, kStream + 8 * kMaxReadPositions);
    std::vector<int> times(layout.message_bytes);
    ASSERT_TRUE(for_each_read(layout, wire.list, [&](const Segment&, std::uint64_t at, std::uint32_t bytes) {
      for (std::uint64_t i = at; i < at + bytes; ++i) ++times.at(i);
      return true;
    }));
    for (std::uint32_t i = 0; i < times.size(); ++i) {
      const bool in_chunks = i >= 40 && i < 40 + 12 * kMaxReadPositions;
      const bool round_up = in_chunks && (i - 40) % 12 >= 5 && (i - 40) % 12 < 8;
      EXPECT_EQ(times[i], round_up ? 0 : 1) << i;
    }
  }
}

TEST(LayoutLimits, V1_062_sizes_in_private_data) {
  for (const auto& [bytes, code] : {std::pair{0u, 0u},
                                    {1023u, 0u},
                                    {1024u, 0u},
                                    {2047u, 0u},
                                    {2048u, 1u},
                                    {4096u, 3u},
                                    {262143u, 254u},
                                    {262144u, 255u},
                                    {263168u, 255u},
                                    {~0u, 255u}}) {
    const auto encoded =
        encode_private_data({.remote_invalidation = false, .send_bytes = bytes, .receive_bytes = 1024});
    EXPECT_EQ(static_cast<std::uint32_t>(encoded[6]), code) << bytes;
    EXPECT_EQ(encoded[7], std::byte{0});
    EXPECT_EQ(encoded[5], std::byte{0});
    const auto back = decode_private_data(encoded);
    ASSERT_TRUE(back);
    EXPECT_EQ(back->send_bytes, 1024 * (code + 1));
    EXPECT_EQ(back->receive_bytes, 1024u);
    EXPECT_FALSE(back->remote_invalidation);
    EXPECT_FALSE(decode_private_data(std::span(encoded).first(7)));
  }
  // Other flags are ignored.
  auto flags = encode_private_data({.remote_invalidation = true});
  EXPECT_EQ(flags[5], std::byte{1});
  flags[5] = std::byte{0xfe};
  EXPECT_FALSE(decode_private_data(flags)->remote_invalidation);
  flags[5] = std::byte{0xff};
  EXPECT_TRUE(decode_private_data(flags)->remote_invalidation);
  const PrivateData peer{.receive_bytes = 8192};
  EXPECT_EQ(send_inline_bytes(peer, 4096), 4096u);
  EXPECT_EQ(send_inline_bytes(peer, 16384), 8192u);
  EXPECT_EQ(send_inline_bytes(peer, 512), 1024u);
  EXPECT_EQ(send_inline_bytes(std::nullopt, 512), 1024u);
}

}  // namespace
}  // namespace sluice::rpcrdma
