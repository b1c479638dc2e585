// SPDX-License-Identifier: Apache-2.0
//
// The extended interfaces of the stub: work requests are staged one by one and posted together, and
// completions are read field by field.
#include <cerrno>
#include <utility>
#include <vector>

#include "tests/driver/verbs_stub.h"

namespace sluice::rdma::conformance {
namespace {

using Extended = Provider::Extended;

void stage(const ibv_qp_ex* qp, ibv_wr_opcode opcode, std::uint32_t rkey = 0, std::uint64_t address = 0) {
  VerbsStub::get().stage(*qp, {.opcode = opcode, .rkey = rkey, .remote_address = address});
}

void add_inline(const void* at, std::size_t bytes) {
  VerbsStub::get().add_data(
      {.addr = reinterpret_cast<std::uintptr_t>(at), .length = static_cast<std::uint32_t>(bytes), .lkey = 0},
      true);
}

void set_functions(ibv_qp_ex& qp, Extended extent) {
  qp.wr_start = [](ibv_qp_ex*) {};
  qp.wr_send = [](ibv_qp_ex* of) { stage(of, IBV_WR_SEND); };
  qp.wr_send_imm = [](ibv_qp_ex* of, __be32 immediate) {
    VerbsStub::get().stage(*of, {.opcode = IBV_WR_SEND_WITH_IMM, .immediate = immediate});
  };
  qp.wr_rdma_write = [](ibv_qp_ex* of, std::uint32_t rkey, std::uint64_t address) {
    stage(of, IBV_WR_RDMA_WRITE, rkey, address);
  };
  qp.wr_rdma_write_imm = [](ibv_qp_ex* of, std::uint32_t rkey, std::uint64_t address, __be32 immediate) {
    VerbsStub::get().stage(*of, {.opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
                                 .rkey = rkey,
                                 .immediate = immediate,
                                 .remote_address = address});
  };
  qp.wr_rdma_read = [](ibv_qp_ex* of, std::uint32_t rkey, std::uint64_t address) {
    stage(of, IBV_WR_RDMA_READ, rkey, address);
  };
  qp.wr_set_sge = [](ibv_qp_ex*, std::uint32_t lkey, std::uint64_t address, std::uint32_t bytes) {
    VerbsStub::get().add_data({.addr = address, .length = bytes, .lkey = lkey}, false);
  };
  qp.wr_set_sge_list = [](ibv_qp_ex*, std::size_t count, const ibv_sge* list) {
    for (std::size_t i = 0; i < count; ++i) VerbsStub::get().add_data(list[i], false);
  };
  qp.wr_set_inline_data = [](ibv_qp_ex*, void* at, std::size_t bytes) { add_inline(at, bytes); };
  qp.wr_set_inline_data_list = [](ibv_qp_ex*, std::size_t count, const ibv_data_buf* list) {
    for (std::size_t i = 0; i < count; ++i) add_inline(list[i].addr, list[i].length);
  };
  qp.wr_complete = [](ibv_qp_ex* of) { return VerbsStub::get().post_staged(*of); };
  qp.wr_abort = [](ibv_qp_ex* of) { VerbsStub::get().abort_staged(*of); };
  if (extent != Extended::Whole) return;
  qp.wr_send_inv = [](ibv_qp_ex* of, std::uint32_t rkey) { stage(of, IBV_WR_SEND_WITH_INV, rkey); };
  qp.wr_local_inv = [](ibv_qp_ex* of, std::uint32_t rkey) { stage(of, IBV_WR_LOCAL_INV, rkey); };
  qp.wr_bind_mw = [](ibv_qp_ex* of, ibv_mw* window, std::uint32_t rkey, const ibv_mw_bind_info* info) {
    VerbsStub::get().stage(*of, {.opcode = IBV_WR_BIND_MW, .rkey = rkey, .window = window, .bind = *info});
  };
}

/// Reads the next completion. Returns ENOENT if there is none.
int next(ibv_cq_ex* cq) {
  auto& queue = *reinterpret_cast<StubQueue*>(cq);  // the first member
  if (VerbsStub::get().poll(queue, 1, &queue.current) == 0) return ENOENT;
  cq->wr_id = queue.current.wr_id;
  cq->status = queue.current.status;
  return 0;
}

const ibv_wc& current(const ibv_cq_ex* cq) {
  return reinterpret_cast<const StubQueue*>(cq)->current;
}

void set_functions(ibv_cq_ex& cq) {
  cq.start_poll = [](ibv_cq_ex* of, ibv_poll_cq_attr*) { return next(of); };
  cq.next_poll = [](ibv_cq_ex* of) { return next(of); };
  cq.end_poll = [](ibv_cq_ex*) {};
  cq.read_opcode = [](ibv_cq_ex* of) { return current(of).opcode; };
  cq.read_vendor_err = [](ibv_cq_ex* of) { return current(of).vendor_err; };
  cq.read_byte_len = [](ibv_cq_ex* of) { return current(of).byte_len; };
  cq.read_qp_num = [](ibv_cq_ex* of) { return current(of).qp_num; };
  cq.read_wc_flags = [](ibv_cq_ex* of) { return current(of).wc_flags; };
  // ibv_wc_read_invalidated_rkey() calls it as well.
  cq.read_imm_data = [](ibv_cq_ex* of) {
    const bool lost =
        VerbsStub::get().provider().extended_rkey_zero && current(of).wc_flags != IBV_WC_WITH_IMM;
    return lost ? __be32{0} : current(of).imm_data;
  };
}

}  // namespace

void VerbsStub::provide_extended(bool provide) {
  const std::lock_guard lock(lock_);
  provider_.posting = provide ? Extended::Whole : Extended::None;
}

ibv_qp* VerbsStub::make_extended(const ibv_qp_init_attr_ex& wanted) {
  const Extended extent = [this] {
    const std::lock_guard lock(lock_);
    return provider_.posting;
  }();
  const bool extended = (wanted.comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) != 0;
  if (extended && extent == Extended::None) {
    errno = EOPNOTSUPP;
    return nullptr;
  }
  ibv_qp_init_attr classic{};
  classic.qp_context = wanted.qp_context;
  classic.send_cq = wanted.send_cq;
  classic.recv_cq = wanted.recv_cq;
  classic.srq = wanted.srq;
  classic.cap = wanted.cap;
  ibv_qp* const qp = make(wanted.pd, classic);
  if (qp != nullptr && extended) set_functions(*ibv_qp_to_qp_ex(qp), extent);
  return qp;
}

ibv_cq_ex* VerbsStub::make_extended_queue(ibv_context* context, std::uint32_t entries) {
  note("ibv_create_cq_ex");
  if (provider().polling == Extended::None) {
    errno = EOPNOTSUPP;
    return nullptr;
  }
  StubQueue* const made = make_queue(context, entries);
  if (made == nullptr) return nullptr;
  set_functions(made->cq);
  return &made->cq;
}

void VerbsStub::stage(const ibv_qp_ex& qp, Posted posted) {
  const std::lock_guard lock(lock_);
  posted.wr_id = qp.wr_id;
  posted.queue_pair = qp.qp_base.qp_num;
  posted.signaled = (qp.wr_flags & IBV_SEND_SIGNALED) != 0;
  staged_.push_back(std::move(posted));
}

void VerbsStub::add_data(const ibv_sge& data, bool inlined) {
  const std::lock_guard lock(lock_);
  staged_.back().bytes += data.length;
  staged_.back().inlined = inlined;
  staged_.back().sges.push_back(data);
}

void VerbsStub::abort_staged(const ibv_qp_ex& qp) {
  const std::lock_guard lock(lock_);
  std::erase_if(staged_, [&](const Posted& posted) { return posted.queue_pair == qp.qp_base.qp_num; });
}

}  // namespace sluice::rdma::conformance

extern "C" ibv_qp_ex* ibv_qp_to_qp_ex(ibv_qp* qp) {
  return reinterpret_cast<ibv_qp_ex*>(qp);  // the base is the first member
}
