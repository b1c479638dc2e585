// SPDX-License-Identifier: Apache-2.0
//
// Tests that compare what the device reports with what it creates. Nothing is posted, except by the probe of
// windows, which the driver of Sluice also runs when it opens a device.
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "cli/card_check/loop.h"
#include "cli/card_check/stopwatch.h"
#include "cli/card_check/subject.h"
#include "pmd/verbs/ports.h"
#include "pmd/verbs/probe.h"

namespace sluice::card_check {
namespace {

namespace verbs = rdma::verbs;
using verbs::Finding;

constexpr std::uint32_t kLeastWorkRequests = 256;    ///< of a connection with 64 credits, in each direction
constexpr std::uint32_t kMostCompletions = 1 << 20;  ///< more would only test the memory limit

constexpr std::uint64_t kProbeLimitNs = 2'000'000'000;

constexpr unsigned kType2 = IBV_DEVICE_MEM_WINDOW_TYPE_2A | IBV_DEVICE_MEM_WINDOW_TYPE_2B;

class Static : public testing::Test {
 protected:
  Static() : context_(open_subject()), attributes_(attributes_of(context_.get())) {
    domain_.reset(ibv_alloc_pd(context_.get()));
    if (domain_ == nullptr) throw LoopError("A protection domain cannot be allocated.");
    ibv_query_port(context_.get(), subject().port, &port_);
  }
  Queue make_queue(std::uint32_t entries) {
    return Queue(ibv_create_cq(context_.get(), static_cast<int>(entries), nullptr, nullptr, 0));
  }
  Pair make_pair(ibv_cq* queue, ibv_qp_cap capacity, std::uint64_t extended_operations = 0) {
    ibv_qp_init_attr_ex wanted{};
    wanted.send_cq = wanted.recv_cq = queue;
    wanted.qp_type = IBV_QPT_RC;
    wanted.pd = domain_.get();
    wanted.cap = capacity;
    wanted.comp_mask = IBV_QP_INIT_ATTR_PD;
    if (extended_operations != 0) {
      wanted.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
      wanted.send_ops_flags = extended_operations;
    }
    return Pair(ibv_create_qp_ex(context_.get(), &wanted));
  }
  /// Probes a window that is ended by this operation (pmd/verbs/probe.h).
  Finding probe(ibv_wr_opcode invalidation) {
    const ibv_gid_entry gid = gid_at(context_.get(), subject().left_gid);
    verbs::SelfConnected probe(context_.get(), subject().port, gid, port_.active_mtu, true,
                               verbs::monotonic_ns() + kProbeLimitNs);
    return probe.connected() ? probe.probe(invalidation) : Finding::Unknown;
  }
  bool reports_windows() const { return (attributes_.device_cap_flags & kType2) != 0; }
  bool allocates_windows() { return Window(ibv_alloc_mw(domain_.get(), IBV_MW_TYPE_2)) != nullptr; }
  /// Calls `accepts` with half of the number until it returns true. Returns the accepted number, or zero.
  template <typename Accepts>
  static std::uint32_t halved_until(std::uint32_t number, const Accepts& accepts) {
    while (number > 0 && !accepts(number)) number /= 2;
    return number;
  }
  static void measured(const char* name, std::uint32_t value) {
    RecordProperty(std::string("measured_") + name, std::to_string(value));
  }

  Context context_;
  ibv_device_attr attributes_;
  ibv_port_attr port_{};
  Domain domain_;
};

TEST_F(Static, the_port_can_be_used_by_sluice) {
  EXPECT_EQ(verbs::problem_of(*context_->device, port_, true), "");
  EXPECT_GE(attributes_.max_qp, 2);
  EXPECT_GE(attributes_.max_qp_rd_atom, 1) << "RDMA Reads as a responder";
  EXPECT_GE(attributes_.max_qp_init_rd_atom, 1) << "RDMA Reads as an initiator";
  EXPECT_GE(attributes_.max_sge, 1);
  EXPECT_GE(port_.max_msg_sz, 1u << 20);
}

TEST_F(Static, windows_are_what_the_flags_say) {
  const bool work = probe(IBV_WR_LOCAL_INV) == Finding::Works;
  RecordProperty("windows", work ? "yes" : "no");
  if (reports_windows()) {
    EXPECT_TRUE(work) << "The device reports type 2 windows, and none can be used. Sluice probes them and "
                         "ignores the flag.";
  } else {
    EXPECT_FALSE(work) << "The device reports no type 2 windows, and they work. Sluice probes and uses them.";
  }
}

TEST_F(Static, a_window_that_can_be_allocated_can_be_used) {
  if (!allocates_windows()) GTEST_SKIP() << "the provider has no windows";
  const Finding found = probe(IBV_WR_LOCAL_INV);
  ASSERT_NE(found, Finding::Unknown)
      << "The probe's queue pair was not connected, or the time limit exceeded.";
  EXPECT_EQ(found, Finding::Works) << "A window can be allocated, but it is not bound, read through and "
                                      "invalidated. Sluice does not use it.";
}

TEST_F(Static, send_with_invalidate_ends_a_window_and_names_its_rkey) {
  if (probe(IBV_WR_LOCAL_INV) != Finding::Works) GTEST_SKIP() << "it needs a window, and the device has none";
  const bool reported = (attributes_.device_cap_flags & IBV_DEVICE_MEM_MGT_EXTENSIONS) != 0;
  const bool works = probe(IBV_WR_SEND_WITH_INV) == Finding::Works;
  RecordProperty("send_with_invalidate", works ? "yes" : "no");
  if (!reported && !works) GTEST_SKIP() << "the device does not report it";
  EXPECT_TRUE(works)
      << "The device reports Send with Invalidate, and it does not work. Sluice sends without it.";
}

TEST_F(Static, a_completion_queue_has_as_many_entries_as_reported) {
  const auto wanted = static_cast<std::uint32_t>(std::clamp<int>(attributes_.max_cqe, 1, kMostCompletions));
  const std::uint32_t accepted =
      halved_until(wanted, [&](std::uint32_t entries) { return make_queue(entries) != nullptr; });
  measured("completions", accepted);
  EXPECT_EQ(accepted, wanted) << "The device refuses a queue of its own limit. Sluice halves the number.";
}

TEST_F(Static, a_queue_pair_has_the_work_requests_that_a_connection_needs) {
  const Queue queue = make_queue(16);
  ASSERT_NE(queue, nullptr);
  const auto limit =
      static_cast<std::uint32_t>(std::clamp<int>(attributes_.max_qp_wr, kLeastWorkRequests, 1 << 16));
  const std::uint32_t accepted = halved_until(limit, [&](std::uint32_t depth) {
    return make_pair(queue.get(), {.max_send_wr = depth,
                                   .max_recv_wr = depth,
                                   .max_send_sge = 1,
                                   .max_recv_sge = 1,
                                   .max_inline_data = 0}) != nullptr;
  });
  measured("work_requests", accepted);
  EXPECT_GE(accepted, kLeastWorkRequests);
}

TEST_F(Static, a_queue_pair_has_as_many_pieces_as_reported) {
  const Queue queue = make_queue(16);
  ASSERT_NE(queue, nullptr);
  const auto limit = static_cast<std::uint32_t>(std::max(attributes_.max_sge, 1));
  const std::uint32_t accepted = halved_until(limit, [&](std::uint32_t pieces) {
    return make_pair(queue.get(), {.max_send_wr = 16,
                                   .max_recv_wr = 16,
                                   .max_send_sge = pieces,
                                   .max_recv_sge = 1,
                                   .max_inline_data = 0}) != nullptr;
  });
  measured("pieces", accepted);
  EXPECT_EQ(accepted, limit) << "The device refuses max_sge pieces.";
}

TEST_F(Static, inline_data_is_measured) {
  const Queue queue = make_queue(16);
  ASSERT_NE(queue, nullptr);
  std::uint32_t accepted = 0;
  for (const std::uint32_t bytes : {32u, 64u, 96u, 101u, 128u, 192u, 256u, 512u, 1024u})
    if (make_pair(queue.get(), {.max_send_wr = 16,
                                .max_recv_wr = 16,
                                .max_send_sge = 1,
                                .max_recv_sge = 1,
                                .max_inline_data = bytes}) != nullptr)
      accepted = bytes;
  measured("inline_bytes", accepted);
  EXPECT_NE(
      make_pair(
          queue.get(),
          {.max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 0}),
      nullptr);
}

TEST_F(Static, a_shared_receive_queue_has_as_many_receives_as_reported) {
  if (attributes_.max_srq == 0) GTEST_SKIP() << "the device has no shared receive queue";
  const auto limit = static_cast<std::uint32_t>(std::clamp<int>(attributes_.max_srq_wr, 16, 1 << 14));
  const std::uint32_t accepted = halved_until(limit, [&](std::uint32_t receives) {
    ibv_srq_init_attr wanted{};
    wanted.attr = {.max_wr = receives, .max_sge = 1, .srq_limit = 0};
    return SharedQueue(ibv_create_srq(domain_.get(), &wanted)) != nullptr;
  });
  measured("shared_receives", accepted);
  EXPECT_EQ(accepted, limit);
}

TEST_F(Static, windows_can_be_allocated_for_every_call_of_some_connections) {
  if (probe(IBV_WR_LOCAL_INV) != Finding::Works) GTEST_SKIP() << "the device has no windows";
  constexpr int kWindows = 1024;
  std::vector<Window> windows;
  while (windows.size() < kWindows) {
    windows.emplace_back(ibv_alloc_mw(domain_.get(), IBV_MW_TYPE_2));
    ASSERT_NE(windows.back(), nullptr)
        << std::strerror(errno) << " after " << windows.size() - 1 << " windows";
  }
}

TEST_F(Static, setup_times_are_measured) {
  constexpr std::size_t kRegionBytes = 16u << 20;
  std::vector<std::byte> memory(kRegionBytes);
  const Queue queue = make_queue(1024);
  ASSERT_NE(queue, nullptr);
  Stopwatch watch("queue_pair");
  const Pair pair = make_pair(queue.get(), {.max_send_wr = kLeastWorkRequests,
                                            .max_recv_wr = kLeastWorkRequests,
                                            .max_send_sge = 1,
                                            .max_recv_sge = 1,
                                            .max_inline_data = 0});
  EXPECT_NE(pair, nullptr);
  watch.next("region_of_16_mib");
  int access = IBV_ACCESS_LOCAL_WRITE;
  const Region region(ibv_reg_mr(domain_.get(), memory.data(), memory.size(), access));
  EXPECT_NE(region, nullptr) << std::strerror(errno) << ". Raise the limit of locked memory, or run as root.";
  watch.next("window");
  const Window window(ibv_alloc_mw(domain_.get(), IBV_MW_TYPE_2));
}

TEST_F(Static, extended_posting_has_every_function_that_it_accepts) {
  const Queue queue = make_queue(16);
  ASSERT_NE(queue, nullptr);
  constexpr ibv_qp_cap kSmall{
      .max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 0};
  constexpr std::uint64_t kBasic = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM |
                                   IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM |
                                   IBV_QP_EX_WITH_RDMA_READ;
  const Pair basic = make_pair(queue.get(), kSmall, kBasic);
  if (basic == nullptr) GTEST_SKIP() << "the provider has no extended posting";
  const auto check = [](const ibv_qp* qp, std::uint64_t operations) {
    const ibv_qp_ex& functions = *ibv_qp_to_qp_ex(const_cast<ibv_qp*>(qp));
    EXPECT_NE(functions.wr_start, nullptr);
    EXPECT_NE(functions.wr_complete, nullptr);
    EXPECT_NE(functions.wr_abort, nullptr);
    EXPECT_NE(functions.wr_set_sge_list, nullptr);
    EXPECT_NE(functions.wr_set_inline_data, nullptr);
    EXPECT_NE(functions.wr_send, nullptr);
    EXPECT_NE(functions.wr_rdma_write, nullptr);
    EXPECT_NE(functions.wr_rdma_read, nullptr);
    if ((operations & IBV_QP_EX_WITH_SEND_WITH_INV) != 0) {
      EXPECT_NE(functions.wr_send_inv, nullptr);
    }
    if ((operations & IBV_QP_EX_WITH_LOCAL_INV) != 0) {
      EXPECT_NE(functions.wr_local_inv, nullptr);
    }
    if ((operations & IBV_QP_EX_WITH_BIND_MW) != 0) {
      EXPECT_NE(functions.wr_bind_mw, nullptr);
    }
  };
  check(basic.get(), kBasic);
  for (const std::uint64_t more :
       {IBV_QP_EX_WITH_SEND_WITH_INV, IBV_QP_EX_WITH_LOCAL_INV, IBV_QP_EX_WITH_BIND_MW})
    if (const Pair extended = make_pair(queue.get(), kSmall, kBasic | more); extended != nullptr)
      check(extended.get(), kBasic | more);
}

TEST_F(Static, extended_polling_has_every_function) {
  ibv_cq_init_attr_ex wanted{};
  wanted.cqe = 16;
  wanted.wc_flags = IBV_WC_EX_WITH_BYTE_LEN | IBV_WC_EX_WITH_IMM | IBV_WC_EX_WITH_QP_NUM;
  ibv_cq_ex* const extended = ibv_create_cq_ex(context_.get(), &wanted);
  if (extended == nullptr) GTEST_SKIP() << "the provider has no extended polling";
  const Queue queue(ibv_cq_ex_to_cq(extended));
  EXPECT_NE(extended->start_poll, nullptr);
  EXPECT_NE(extended->next_poll, nullptr);
  EXPECT_NE(extended->end_poll, nullptr);
  EXPECT_NE(extended->read_opcode, nullptr);
  EXPECT_NE(extended->read_vendor_err, nullptr);
  EXPECT_NE(extended->read_byte_len, nullptr);
  EXPECT_NE(extended->read_imm_data, nullptr);
  EXPECT_NE(extended->read_qp_num, nullptr);
  EXPECT_NE(extended->read_wc_flags, nullptr);
}

}  // namespace
}  // namespace sluice::card_check
