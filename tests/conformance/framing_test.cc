// SPDX-License-Identifier: Apache-2.0
//
// Requirement rows 2.1 and 2.2 seen from outside: framing, versions, transport errors.
#include <gtest/gtest.h>

#include "tests/conformance/lab.h"

namespace sluice::conformance {
namespace {

/// 20 bytes: xid, version, credit, RDMA_ERROR, ERR_CHUNK.
void expect_err_chunk(const Bytes& answer, std::uint32_t xid) {
  ASSERT_EQ(answer.size(), 20u);
  EXPECT_EQ(word_at(answer, 0), xid);
  EXPECT_EQ(word_at(answer, 1), 1u);
  EXPECT_GE(word_at(answer, 2), 1u);
  EXPECT_EQ(word_at(answer, 3), 4u);
  EXPECT_EQ(word_at(answer, 4), 2u);
}

TEST(Framing, V1_001_V1_006_V1_010_null_call_is_answered_in_one_send) {
  ServerLab lab;
  Bytes message = plain_header(0x1A2B3C4D, 32);
  append(message, rpc_call(0x1A2B3C4D, kTestProgram, 1, 0));
  lab.log.clear();
  const Bytes reply = lab.call(message);
  ASSERT_EQ(reply.size(), 52u);
  EXPECT_EQ(reply, ClientLab::success(0x1A2B3C4D, word_at(reply, 2)));
  EXPECT_EQ(word_at(reply, 2), 64u);
  EXPECT_EQ(lab.log.count(OpKind::PostSend), 1u);
  EXPECT_EQ(lab.log.count(OpKind::PostRead), 0u);
  EXPECT_EQ(lab.log.count(OpKind::PostWrite), 0u);
}

TEST(Framing, V1_022_V1_024_foreign_versions_get_ERR_VERS_F_01) {
  ServerLab lab;
  for (const std::uint32_t version : {0u, 2u, 3u, 0xFFFFFFFFu}) {
    const Bytes answer =
        lab.call(words({0x1A2B3C52, version, 0x10, 0, 0, 0, 0, 0x1A2B3C52, 0, 2, 100003, 3, 0, 0, 0, 0, 0}));
    ASSERT_EQ(answer.size(), 28u);
    EXPECT_EQ(word_at(answer, 0), 0x1A2B3C52u);
    EXPECT_EQ(word_at(answer, 1), version);
    EXPECT_EQ(word_at(answer, 3), 4u);
    EXPECT_EQ(word_at(answer, 4), 1u);
    EXPECT_EQ(word_at(answer, 5), 1u);
    EXPECT_EQ(word_at(answer, 6), 1u);
    EXPECT_TRUE(lab.alive());
  }
}

TEST(Framing, V1_031_V1_033_bad_headers_get_ERR_CHUNK_F_02) {
  ServerLab lab;
  expect_err_chunk(
      lab.call(words({0x1A2B3C53, 1, 0x20, 9, 0, 0, 0, 0x1A2B3C53, 0, 2, 100003, 3, 0, 0, 0, 0, 0})),
      0x1A2B3C53);
  expect_err_chunk(lab.call(words({0x1A2B3C53, 1, 0x20, 1, 1, 0, 0xD01})), 0x1A2B3C53);
  EXPECT_TRUE(lab.service->executed.empty());
}

}  // namespace
}  // namespace sluice::conformance
