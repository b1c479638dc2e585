// SPDX-License-Identifier: Apache-2.0
//
// Tests of the data path by libibverbs, without the driver of Sluice, over one port. The driver's own tests
// are in tests/driver.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "cli/card_check/loop.h"
#include "cli/card_check/probes.h"

namespace sluice::card_check {
namespace {

struct Variant {
  const char* name;
  bool extended_posting;
  bool extended_polling;
};

class Loopback : public testing::TestWithParam<Variant> {
 protected:
  /// Creates the queue pairs. Returns null if the provider lacks the interface of the variant.
  static std::unique_ptr<Loop> make(LoopConfig config) {
    config.extended_posting = GetParam().extended_posting;
    config.extended_polling = GetParam().extended_polling;
    if (!config.extended_posting && !config.extended_polling) return std::make_unique<Loop>(config);
    try {
      return std::make_unique<Loop>(config);
    } catch (const LoopError&) {
      config.extended_posting = config.extended_polling = false;
      const Loop classic(config);  // throws if the reason is another one
      return nullptr;
    }
  }
  static void fill(Loop& loop, std::size_t at, std::size_t bytes, std::uint32_t seed) {
    for (std::size_t i = 0; i < bytes; ++i)
      loop.memory()[at + i] = static_cast<std::byte>(i * 37 + std::size_t{seed} * 11 + (i >> 9));
  }
};

constexpr Variant kVariants[] = {
    {"classic", false, false}, {"extended_posting", true, false}, {"extended_polling", false, true}};
std::string name_of(const testing::TestParamInfo<Variant>& row) {
  return row.param.name;
}
INSTANTIATE_TEST_SUITE_P(, Loopback, testing::ValuesIn(kVariants), name_of);

constexpr const char* kNoInterface = "the provider has no extended interface";

TEST_P(Loopback, reads_bring_every_byte_into_1_to_16_pieces) {
  constexpr std::size_t kBytes = 200;
  constexpr std::size_t kTarget = 1u << 16;
  std::unique_ptr<Loop> loop = make({});
  if (loop == nullptr) GTEST_SKIP() << kNoInterface;
  const std::uint32_t reported = std::max(loop->max_read_sges(), 1u);
  std::uint32_t works = 0;
  for (std::uint32_t pieces = 1; pieces <= loop->max_sges(); ++pieces) {
    fill(*loop, 0, pieces * kBytes, pieces);
    std::memset(loop->memory().data() + kTarget, 0xEE, 1u << 15);
    std::vector<ibv_sge> sges;
    for (std::uint32_t i = 0; i < pieces; ++i)
      sges.push_back(loop->sge(kTarget + std::size_t{3} * i * kBytes, kBytes));
    const bool refused = loop->post(loop->left(), read_of(pieces, sges, loop->address(0), loop->rkey())) != 0;
    if (refused || loop->await(pieces).status != IBV_WC_SUCCESS) {
      EXPECT_GT(pieces, reported) << "An RDMA Read with " << pieces
                                  << " pieces fails, although max_sge_rd is " << reported << ".";
      break;
    }
    bool whole = true;
    for (std::uint32_t i = 0; i < pieces; ++i)
      whole = whole && std::memcmp(loop->memory().data() + kTarget + std::size_t{3} * i * kBytes,
                                   loop->memory().data() + i * kBytes, kBytes) == 0;
    EXPECT_TRUE(whole)
        << "An RDMA Read with " << pieces
        << " pieces succeeds without all of its bytes. Sluice posts at most max_sge_rd pieces.";
    if (!whole) break;
    works = pieces;
  }
  RecordProperty("measured_read_pieces", std::to_string(works));
}

TEST_P(Loopback, batches_of_16_are_executed_in_order) {
  constexpr std::uint32_t kBatch = 16;
  constexpr std::size_t kBytes = 48;
  constexpr std::size_t kTarget = 1u << 16;
  std::unique_ptr<Loop> loop = make({.inline_bytes = 64});
  if (loop == nullptr) GTEST_SKIP() << kNoInterface;
  fill(*loop, 0, kBatch * kBytes, 7);
  std::vector<ibv_sge> sges;
  std::vector<ibv_send_wr> wrs(kBatch);
  for (std::uint32_t i = 0; i < kBatch; ++i) sges.push_back(loop->sge(i * kBytes, kBytes));
  for (std::uint32_t i = 0; i < kBatch; ++i) {
    const bool send = i % 4 == 3;
    wrs[i].wr_id = i;
    wrs[i].opcode = send ? IBV_WR_SEND : IBV_WR_RDMA_WRITE;
    if (i % 2 == 0 && kBytes <= loop->inline_bytes()) wrs[i].send_flags |= IBV_SEND_INLINE;
    if (i + 1 == kBatch) wrs[i].send_flags |= IBV_SEND_SIGNALED;
    wrs[i].sg_list = &sges[i];
    wrs[i].num_sge = 1;
    if (!send) wrs[i].wr.rdma = {.remote_addr = loop->address(kTarget + i * kBytes), .rkey = loop->rkey()};
    if (send) {
      ASSERT_EQ(loop->receive(loop->right(), 100 + i, loop->sge(kTarget + i * kBytes, kBytes)), 0);
    }
  }
  ASSERT_EQ(loop->post(loop->left(), wrs), 0);
  for (std::uint32_t i = 3; i < kBatch; i += 4) {
    const Done done = loop->await(100 + i);
    EXPECT_EQ(done.status, IBV_WC_SUCCESS) << i;
    EXPECT_EQ(done.byte_len, kBytes) << i;
  }
  EXPECT_EQ(loop->await(kBatch - 1).status, IBV_WC_SUCCESS);
  EXPECT_EQ(std::memcmp(loop->memory().data(), loop->memory().data() + kTarget, kBatch * kBytes), 0);
}

TEST_P(Loopback, as_many_reads_as_the_send_queue_holds_are_accepted) {
  constexpr std::uint32_t kDepth = 256;
  std::unique_ptr<Loop> loop = make({.depth = kDepth});
  if (loop == nullptr) GTEST_SKIP() << kNoInterface;
  fill(*loop, 0, std::size_t{kDepth} * 64, 3);
  std::vector<ibv_sge> sges;
  for (std::uint32_t i = 0; i < kDepth; ++i) sges.push_back(loop->sge((1u << 16) + std::size_t{i} * 64, 64));
  std::vector<ibv_send_wr> wrs;
  for (std::uint32_t i = 0; i < kDepth; ++i)
    wrs.push_back(read_of(i, {&sges[i], 1}, loop->address(std::size_t{i} * 64), loop->rkey()));
  ASSERT_EQ(loop->post(loop->left(), wrs), 0) << "The provider refuses RDMA Reads that its send queue has "
                                                 "room for. Sluice posts fewer with providers "
                                                 "that are known for it.";
  EXPECT_EQ(loop->await(kDepth - 1).status, IBV_WC_SUCCESS);
  EXPECT_EQ(std::memcmp(loop->memory().data(), loop->memory().data() + (1u << 16), std::size_t{kDepth} * 64),
            0);
}

TEST_P(Loopback, a_queue_pair_in_error_flushes_every_depth) {
  for (const std::uint32_t depth : {1u, 2u, 3u, 7u, 31u, 64u}) {
    std::unique_ptr<Loop> loop = make({});
    if (loop == nullptr) GTEST_SKIP() << kNoInterface;
    for (std::uint32_t i = 0; i < depth; ++i) ASSERT_EQ(loop->receive(loop->left(), i, loop->sge(0, 64)), 0);
    ASSERT_TRUE(loop->to_error(loop->left()));
    const std::vector<Done> done = loop->await_all(loop->left()->qp_num, depth);
    ASSERT_EQ(done.size(), depth) << "The other Receives are not flushed within five seconds.";
    for (std::uint32_t i = 0; i < depth; ++i) {
      EXPECT_EQ(done[i].wr_id, i);
      EXPECT_EQ(done[i].status, IBV_WC_WR_FLUSH_ERR);
    }
  }
}

TEST_P(Loopback, a_peer_that_vanishes_ends_a_queue_pair_with_an_error) {
  std::unique_ptr<Loop> loop = make({});
  if (loop == nullptr) GTEST_SKIP() << kNoInterface;
  ASSERT_EQ(loop->receive(loop->left(), 2, loop->sge(0, 64)), 0);
  loop->destroy_right();
  ASSERT_EQ(loop->send(1, 64), 0);
  const Done done = loop->await(1);
  EXPECT_EQ(done.status, IBV_WC_RETRY_EXC_ERR) << ibv_wc_status_str(done.status);
  EXPECT_EQ(loop->await_all(loop->left()->qp_num, 2).size(), 2u) << "The Receive is not flushed.";
}

TEST_P(Loopback, a_message_too_long_for_its_receive_is_an_invalid_request) {
  std::unique_ptr<Loop> loop = make({});
  if (loop == nullptr) GTEST_SKIP() << kNoInterface;
  ASSERT_EQ(loop->receive(loop->right(), 2, loop->sge(4096, 63)), 0);
  ASSERT_EQ(loop->send(1, 64), 0);
  EXPECT_EQ(loop->await(2).status, IBV_WC_LOC_LEN_ERR);
  const Done done = loop->await(1);
  EXPECT_EQ(done.status, IBV_WC_REM_INV_REQ_ERR) << ibv_wc_status_str(done.status);
}

class PlainLoopback : public testing::Test {};

TEST_F(PlainLoopback, a_request_that_breaks_a_local_rule_names_its_error) {
  const ibv_wc_status status = status_of_local_error();
  EXPECT_EQ(status, IBV_WC_LOC_PROT_ERR)
      << ibv_wc_status_str(status) << " instead: the log and the events of Sluice do not name the cause.";
}

class SharedLoopback : public testing::Test {};

TEST_F(SharedLoopback, the_last_receive_is_reported_when_a_queue_pair_ends) {
  const Context context = open_subject();
  if (attributes_of(context.get()).max_srq == 0) GTEST_SKIP() << "the device has no shared receive queue";
  Loop loop({.shared_receives = true});
  ASSERT_EQ(loop.receive(loop.left(), 1, loop.sge(0, 64)), 0);
  ASSERT_TRUE(loop.to_error(loop.left()));
  EXPECT_TRUE(loop.await_event(IBV_EVENT_QP_LAST_WQE_REACHED, loop.left()->qp_num))
      << "IBV_EVENT_QP_LAST_WQE_REACHED is not raised within a second. Sluice waits for it with a time "
         "limit.";
}

}  // namespace
}  // namespace sluice::card_check
