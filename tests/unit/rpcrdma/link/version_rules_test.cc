// SPDX-License-Identifier: Apache-2.0
//
// Headers that the rules of each version encode: their length is the announced one, and the decoder of the
// version finds the fields.
#include "dataplane/rpcrdma/link/version_rules.h"

#include <gtest/gtest.h>

#include <array>

namespace sluice::rpcrdma {
namespace {

constexpr Segment kSegments[]{{rdma::Rkey{7}, 4096, 0x1000}, {rdma::Rkey{8}, 512, 0x9000}};

/// Chunk lists of a call with this many Write chunks of two segments, with or without a Reply chunk.
class OfferedChunks {
 public:
  OfferedChunks(std::size_t writes, bool reply) {
    const std::array<std::span<const Segment>, 3> all{kSegments, kSegments, kSegments};
    CallChunks chunks{{}, std::span(all).first(writes), {}};
    if (reply) chunks.reply = kSegments;
    xdr::Writer writer(bytes_);
    v1::encode_call(writer, rpc::Xid{5}, Credits{1}, v1::Procedure::NoMsg, chunks);
    lists_ = v1::decode(std::span(bytes_).first(writer.position())).header.chunks;
  }
  const ChunkLists& lists() const { return lists_; }

 private:
  std::array<std::byte, 512> bytes_{};
  ChunkLists lists_;
};

TEST(VersionRules, a_reply_header_has_the_announced_length_and_fields) {
  for (const VersionRules* rules : {&kVersion1Rules, &kVersion2Rules})
    for (std::size_t writes = 0; writes <= 3; ++writes)
      for (const bool reply : {false, true}) {
        const OfferedChunks offered(writes, reply);
        const ReplyChunks returned{offered.lists().writes, {}, offered.lists().reply, 0};
        std::array<std::byte, 512> bytes{};
        xdr::Writer writer(bytes);
        rules->encode_reply(writer, {.xid = rpc::Xid{99}, .credits = 0x00200003, .no_msg = reply}, returned);
        ASSERT_TRUE(writer.ok());
        EXPECT_EQ(writer.position(), rules->header_bytes(returned));
        const FixedHeader fixed = load_fixed(bytes.data());
        EXPECT_EQ(fixed.xid, rpc::Xid{99});
        EXPECT_EQ(fixed.credits, Credits{0x00200003});
        EXPECT_EQ(fixed.version, rules == &kVersion1Rules ? v1::kVersion : v2::kVersion);
        EXPECT_EQ(fixed.procedure, reply ? 1u : 0u);
      }
}

TEST(VersionRules, V1_024_V2_044_an_error_has_the_xid_of_the_message_and_the_code_of_the_version) {
  const FixedHeader failing{rpc::Xid{99}, 1, Credits{0}, 0};
  const v2::Error error{.code = v2::ErrorCode::ReplyResource, .bytes_needed = 9120};
  std::array<std::byte, 64> bytes{};
  xdr::Writer first(bytes);
  kVersion1Rules.encode_error(first, failing, 8, error);
  const v1::DecodeResult one = v1::decode(first.written());
  EXPECT_EQ(one.status, v1::Decode::Ok);
  EXPECT_EQ(one.header.error, v1::ErrorCode::Chunk);
  EXPECT_EQ(one.header.fixed.xid, rpc::Xid{99});
  EXPECT_EQ(one.header.fixed.credits, Credits{8});

  xdr::Writer second(bytes);
  kVersion2Rules.encode_error(second, failing, 8, error);
  const v2::DecodeResult two = v2::decode(second.written());
  EXPECT_EQ(two.status, v2::Decode::Ok);
  EXPECT_EQ(two.header.error.code, v2::ErrorCode::ReplyResource);
  EXPECT_EQ(two.header.error.bytes_needed, 9120u);
  EXPECT_EQ(two.header.fixed.xid, rpc::Xid{99});
  EXPECT_EQ(two.header.credit, v2::CreditWord(0, 8));
}

}  // namespace
}  // namespace sluice::rpcrdma
