// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "dataplane/base/net_address.h"
#include "dataplane/rpcrdma/link/config.h"
#include "dataplane/rpcrdma/responder/call_layout.h"
#include "dataplane/rpcrdma/wire/v1.h"

namespace sluice::rpcrdma {
namespace {

/// A Read list in wire format, like the codec returns it.
class WireReadList {
 public:
  explicit WireReadList(std::vector<ReadSegment> reads) : bytes_(28 + reads.size() * kReadEntryBytes) {
    xdr::Writer writer(bytes_);
    v1::encode_call(writer, rpc::Xid{1}, Credits{1}, v1::Procedure::NoMsg, {reads, {}, std::nullopt});
    list_ = v1::decode(bytes_).header.chunks.reads;
  }
  const ReadList& list() const { return list_; }

 private:
  std::vector<std::byte> bytes_;
  ReadList list_;
};

ReadSegment at(std::uint32_t position, std::uint32_t bytes, std::uint64_t offset = 0) {
  return {static_cast<Position>(position), {rdma::Rkey{1}, bytes, offset}};
}

constexpr std::uint64_t kLimit = 1 << 20;

TEST(CallLayout, V1_078_V1_089_V1_117_V1_032_defects_are_named) {
  const auto defect = [](std::vector<ReadSegment> reads, bool long_call, std::uint64_t inline_bytes) {
    return lay_out_call(WireReadList(std::move(reads)).list(), long_call, inline_bytes, kLimit).defect;
  };
  EXPECT_EQ(defect({at(38, 4)}, false, 40), LayoutDefect::Misaligned);
  EXPECT_EQ(defect({at(0, 40)}, false, 40), LayoutDefect::PositionZeroInMsg);
  EXPECT_EQ(defect({at(44, 40)}, true, 0), LayoutDefect::NoPositionZero);
  EXPECT_EQ(defect({at(8, 4)}, true, 0), LayoutDefect::BadPosition);
  EXPECT_EQ(defect({at(4096, 64)}, false, 40), LayoutDefect::BadPosition);
  EXPECT_EQ(defect({at(96, 5001), at(100, 4)}, false, 200), LayoutDefect::BadPosition);
  EXPECT_EQ(defect({at(96, 0xFFFFFFFF), at(96, 0xFFFFFFFF), at(96, 0xFFFFFFFF)}, false, 96),
            LayoutDefect::TooLong);
  EXPECT_EQ(defect({at(96, 0)}, false, 96), LayoutDefect::None);
}

TEST(CallLayout, V1_079_V1_082_V1_081_segments_of_a_position_are_one_chunk_in_any_order) {
  const WireReadList reads({at(400, 7, 100), at(96, 100), at(400, 9, 200), at(400, 100, 300)});
  const CallLayout layout = lay_out_call(reads.list(), false, 400, kLimit);
  ASSERT_EQ(layout.defect, LayoutDefect::None);
  ASSERT_EQ(layout.chunk_count, 2u);
  EXPECT_EQ(layout.chunks[0].position, 96u);
  EXPECT_EQ(layout.chunks[1].position, 400u);
  EXPECT_EQ(layout.chunks[1].bytes, 116u);
  EXPECT_EQ(layout.message_bytes, 400u + 100 + 116);
  std::vector<std::pair<std::uint64_t, std::uint64_t>> places;
  for_each_read(layout, reads.list(), [&](const Segment& remote, std::uint64_t where, std::uint32_t) {
    places.emplace_back(remote.offset, where);
    return true;
  });
  EXPECT_EQ(places, (std::vector<std::pair<std::uint64_t, std::uint64_t>>{
                        {100, 400}, {0, 96}, {200, 407}, {300, 416}}));
}

/// Property: however a message is split into position-zero segments and chunks, every byte is placed exactly
/// once.
TEST(CallLayout, V1_080_V1_112_V1_115_V1_116_V1_128_random_cuts_cover_the_message_once) {
  std::mt19937 random(3);
  const auto below = [&](std::uint32_t n) { return static_cast<std::uint32_t>(random() % n); };
  for (int round = 0; round < 3000; ++round) {
    std::vector<ReadSegment> reads;
    std::vector<std::uint32_t> positions;
    std::uint32_t message = 40 + below(50) * 4;
    std::uint32_t stream = message;
    for (std::uint32_t chunks = below(4); chunks > 0; --chunks) {
      const std::uint32_t bytes = 1 + below(300);
      positions.push_back(message);
      for (std::uint32_t left = bytes; left > 0;) {
        const std::uint32_t cut = std::min<std::uint32_t>(left, 1 + below(120));
        reads.push_back(at(message, cut));
        left -= cut;
      }
      message += static_cast<std::uint32_t>(xdr::padded(bytes));
      const std::uint32_t tail = below(20) * 4;
      message += tail;
      stream += tail;
    }
    std::shuffle(reads.begin(), reads.end(), random);
    for (std::uint32_t left = stream; left > 0;) {
      const std::uint32_t cut = std::min<std::uint32_t>(left, 1 + below(90));
      reads.push_back(at(0, cut));
      left -= cut;
    }
    if (reads.size() > kMaxReadSegments) continue;
    const WireReadList wire(reads);
    const CallLayout layout = lay_out_call(wire.list(), true, 0, kLimit);
    ASSERT_EQ(layout.defect, LayoutDefect::None);
    ASSERT_EQ(layout.message_bytes, message);
    std::vector<int> covered(message, 0);
    for_each_read(layout, wire.list(), [&](const Segment&, std::uint64_t where, std::uint32_t bytes) {
      for (std::uint32_t i = 0; i < bytes; ++i) ++covered.at(where + i);
      return true;
    });
    std::uint64_t holes = 0;
    for (const int times : covered) {
      ASSERT_LE(times, 1);
      holes += times == 0;
    }
    ASSERT_LE(holes, positions.size() * 3);  // round-up only
  }
}

TEST(PrivateData, V1_061_V1_063_V1_069_round_trip_and_defaults) {
  for (std::uint32_t bytes = 1024; bytes <= 262144; bytes += 1024) {
    const auto encoded =
        encode_private_data({.remote_invalidation = false, .send_bytes = bytes, .receive_bytes = 1024});
    const auto decoded = decode_private_data(encoded);
    ASSERT_TRUE(decoded);
    EXPECT_EQ(decoded->send_bytes, bytes);
    EXPECT_EQ(decoded->receive_bytes, 1024u);
  }
  // Private data of a Linux client: version 1, remote invalidation, 4096 both ways.
  const std::byte linux_client[] = {std::byte{0xf6}, std::byte{0xab}, std::byte{0x0e}, std::byte{0x18},
                                    std::byte{1},    std::byte{1},    std::byte{3},    std::byte{3}};
  const auto decoded = decode_private_data(linux_client);
  ASSERT_TRUE(decoded);
  EXPECT_TRUE(decoded->remote_invalidation);
  EXPECT_EQ(decoded->receive_bytes, 4096u);
  EXPECT_EQ(send_inline_bytes(decoded, 65536), 4096u);
}

TEST(PrivateData, V1_062_F_14_an_unknown_peer_receives_1024_bytes) {
  EXPECT_EQ(send_inline_bytes(std::nullopt, 4096), 1024u);
  EXPECT_FALSE(decode_private_data({}));
  std::byte garbage[8] = {std::byte{0xf6}, std::byte{0xab}, std::byte{0x0e}, std::byte{0x19}};
  EXPECT_FALSE(decode_private_data(garbage));
  const auto other_version = [] {
    auto bytes = encode_private_data({});
    bytes[4] = std::byte{2};
    return bytes;
  }();
  EXPECT_FALSE(decode_private_data(other_version));
}

}  // namespace
}  // namespace sluice::rpcrdma
