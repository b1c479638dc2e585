// SPDX-License-Identifier: Apache-2.0
//
// The providers of rdma-core as data: what each reports, what it does, and where both differ. The stub
// (verbs_stub.h) behaves as the selected provider. Each row names the source file that shows its deviations;
// paths are below rdma-core's providers/, or below Linux's drivers/infiniband/hw/ if they begin with hw/.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <span>
#include <string_view>

namespace sluice::rdma::conformance {

struct Provider {
  /// Interface that ibv_create_qp_ex() or ibv_create_cq_ex() returns.
  enum class Extended : std::uint8_t {
    None,        ///< the function returns an error
    PartlyNull,  ///< every flag is accepted, and some functions are null
    Whole,
  };
  enum class Windows : std::uint8_t {
    None,          ///< ibv_alloc_mw() returns EOPNOTSUPP
    AllocateOnly,  ///< ibv_post_send() refuses the bind
    Whole,
  };
  enum class Invalidation : std::uint8_t {
    Refused,  ///< ibv_post_send() refuses Send with Invalidate
    KeyLost,  ///< the rkey of the work request is not written
    Whole,
  };
  enum class ExcessSges : std::uint8_t {
    Refused,    ///< ibv_post_send() refuses an RDMA Read with more elements than the limit
    FirstOnly,  ///< the other elements of an RDMA Read are ignored without an error
  };
  enum class Flush : std::uint8_t {
    AtOnce,
    AtEvents,  ///< flushed completions appear once ibv_get_async_event() was called
    Never,
  };

  std::string_view name;    ///< folder in providers/
  std::string_view driver;  ///< kernel driver in sysfs; empty for a device without hardware
  unsigned flags = IBV_DEVICE_MEM_WINDOW_TYPE_2B | IBV_DEVICE_MEM_MGT_EXTENSIONS;  ///< device_cap_flags
  Extended posting = Extended::None;
  Extended polling = Extended::None;
  Windows windows = Windows::None;
  Invalidation invalidation = Invalidation::Whole;
  bool extended_rkey_zero = false;  ///< ibv_wc_read_invalidated_rkey() returns zero
  std::uint32_t read_sges_reported = 16;
  std::uint32_t read_sges = 16;
  ExcessSges excess = ExcessSges::Refused;
  std::uint32_t read_queue = 0;  ///< number of outstanding RDMA Reads that are accepted; zero: unlimited
  std::uint32_t max_completions = 1 << 16;  ///< reported limit of a completion queue, in entries
  std::uint32_t completion_factor = 1;      ///< entries that the provider uses for each requested one
  std::uint64_t max_region_bytes = std::uint64_t{1} << 40;
  bool shared_receives = true;
  std::uint32_t max_inline = 1024;  ///< bytes
  Flush flush = Flush::AtOnce;
  bool last_receive_event = true;  ///< IBV_EVENT_QP_LAST_WQE_REACHED is raised
  /// Status at the sender of a message that is longer than its Receive.
  ibv_wc_status too_long = IBV_WC_REM_INV_REQ_ERR;
  /// Flag of a received message that has invalidated an rkey.
  unsigned invalidation_flag = IBV_WC_WITH_INV;
  bool window_bounds = true;  ///< an access is checked against its window, not only against the region
  int max_reads = 16;         ///< outstanding RDMA Reads of a queue pair, in each direction
  std::uint32_t completions_taken = 0;  ///< largest completion queue; zero: the reported limit
  bool poll_calls_kernel = false;       ///< a poll moves the queue pair of a failed work request to Error
  bool cleans_queues = false;           ///< ibv_destroy_qp() removes the completions of the queue pair
  bool thread_domains = false;
};

/// The provider of a device with every feature, which the stub is unless a test selects another one.
inline constexpr Provider kFullProvider{.name = "mlx5",
                                        .driver = "mlx5_core",
                                        .posting = Provider::Extended::Whole,
                                        .polling = Provider::Extended::Whole,
                                        .windows = Provider::Windows::Whole,
                                        .cleans_queues = true,
                                        .thread_domains = true};

inline constexpr Provider kProviders[] = {
    // mlx5/verbs.c, mlx5/qp.c: windows by UMR, both extended interfaces, thread domains. mlx5/cq.c:
    // __mlx5_cq_clean() when a queue pair is destroyed.
    kFullProvider,
    // mlx4/verbs.c, mlx4/qp.c: windows, no extended posting.
    {.name = "mlx4",
     .driver = "mlx4_core",
     .polling = Provider::Extended::Whole,
     .windows = Provider::Windows::Whole},
    // ionic/ionic_verbs.c, ionic/ionic.h: everything except a shared receive queue.
    {.name = "ionic",
     .driver = "ionic",
     .posting = Provider::Extended::Whole,
     .polling = Provider::Extended::Whole,
     .windows = Provider::Windows::Whole,
     .shared_receives = false,
     .thread_domains = true},
    // irdma/uverbs.c: irdma_wc_read_imm_data() also answers for the invalidated rkey; irdma_upost_send()
    // refuses more elements than max_hw_read_sges; get_cq_size() doubles the entries; max_inline 101.
    // hw/irdma/verbs.c: IB_DEVICE_MEM_WINDOW without a type.
    {.name = "irdma",
     .driver = "ice",
     .flags = IBV_DEVICE_MEM_WINDOW | IBV_DEVICE_MEM_MGT_EXTENSIONS,
     .polling = Provider::Extended::Whole,
     .windows = Provider::Windows::Whole,
     .extended_rkey_zero = true,
     .read_sges_reported = 13,
     .read_sges = 13,
     .completion_factor = 2,
     .shared_receives = false,
     .max_inline = 101},
    // bnxt_re/verbs.c of rdma-core 44: bnxt_re_create_qp_ex() does not exist. bnxt_re/main.c: no alloc_mw,
    // although hw/bnxt_re/ib_verbs.c reports type 2B. Flushes in software: bnxt_re/verbs.c.
    {.name = "bnxt_re_44", .driver = "bnxt_en", .flush = Provider::Flush::AtEvents},
    // bnxt_re/verbs.c since rdma-core 56: bnxt_re_create_qp_ex() accepts every flag of send_ops_flags, but
    // sets neither wr_send_inv nor wr_bind_mw nor wr_local_inv.
    {.name = "bnxt_re_56",
     .driver = "bnxt_en",
     .posting = Provider::Extended::PartlyNull,
     .flush = Provider::Flush::AtEvents},
    // hns/hns_roce_u.c: no windows; hns/hns_roce_u_hw_v2.c: extended interfaces, and ibv_modify_qp() by a
    // poll that finds an error; hw/hns/hns_roce_main.c: max_sge_rd 1.
    {.name = "hns",
     .driver = "hns3",
     .flags = IBV_DEVICE_MEM_MGT_EXTENSIONS,
     .posting = Provider::Extended::Whole,
     .polling = Provider::Extended::Whole,
     .read_sges_reported = 1,
     .poll_calls_kernel = true,
     .thread_domains = true},
    // qedr/qelr_main.c: neither windows nor extended interfaces; qedr/qelr_verbs.c: Send with Invalidate.
    {.name = "qedr", .driver = "qede", .flags = IBV_DEVICE_MEM_MGT_EXTENSIONS},
    // mana/mana.c: alloc_mw, but mana/wr.c's is_opcode_supported() knows neither the bind nor Send with
    // Invalidate; mana/qp.c: a queue of 4096 bytes for RDMA Reads, with 32 bytes for each of one piece;
    // flushes in software.
    {.name = "mana",
     .driver = "mana",
     .flags = 0,
     .windows = Provider::Windows::AllocateOnly,
     .invalidation = Provider::Invalidation::Refused,
     .read_queue = 128,
     .max_completions = 1 << 12,
     .shared_receives = false,
     .flush = Provider::Flush::AtEvents},
    // erdma/erdma_verbs.c: an RDMA Read takes sg_list[0] and ignores the rest; hw/erdma/erdma_verbs.c:
    // max_sge_rd 1.
    {.name = "erdma",
     .driver = "erdma",
     .flags = IBV_DEVICE_MEM_MGT_EXTENSIONS,
     .read_sges_reported = 1,
     .read_sges = 1,
     .excess = Provider::ExcessSges::FirstOnly,
     .shared_receives = false},
    // vmw_pvrdma/qp.c: pvrdma_post_send() accepts Send with Invalidate and does not write its rkey.
    {.name = "pvrdma",
     .driver = "vmw_pvrdma",
     .flags = IBV_DEVICE_MEM_MGT_EXTENSIONS,
     .invalidation = Provider::Invalidation::KeyLost},
    // rxe/rxe.c: windows, and extended interfaces that rdma-core 44 implements wrongly. sw/rxe/rxe_resp.c of
    // Linux 6.1: check_rkey() compares with the region, send_data_in() returns an error that the requester
    // reports as an operation error; sw/rxe/rxe_comp.c: the kernel's IB_WC_WITH_INVALIDATE.
    {.name = "rxe",
     .driver = {},
     .posting = Provider::Extended::Whole,
     .polling = Provider::Extended::Whole,
     .windows = Provider::Windows::Whole,
     .last_receive_event = false,
     .too_long = IBV_WC_REM_OP_ERR,
     .invalidation_flag = IBV_WC_IP_CSUM_OK,
     .window_bounds = false},
};

}  // namespace sluice::rdma::conformance
