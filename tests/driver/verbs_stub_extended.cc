// SPDX-License-Identifier: Apache-2.0
//
// The extended interface of the stub: work requests are staged one by one and posted together.
#include <cerrno>
#include <vector>

#include "tests/driver/verbs_stub.h"

namespace sluice::rdma::conformance {
namespace {

void staged(const ibv_qp_ex* qp, ibv_wr_opcode opcode) {
  VerbsStub::get().stage(*qp, opcode);
}

void set_functions(ibv_qp_ex& qp) {
  qp.wr_start = [](ibv_qp_ex*) {};
  qp.wr_send = [](ibv_qp_ex* of) { staged(of, IBV_WR_SEND); };
  qp.wr_send_imm = [](ibv_qp_ex* of, __be32) { staged(of, IBV_WR_SEND_WITH_IMM); };
  qp.wr_send_inv = [](ibv_qp_ex* of, std::uint32_t) { staged(of, IBV_WR_SEND_WITH_INV); };
  qp.wr_rdma_write = [](ibv_qp_ex* of, std::uint32_t, std::uint64_t) { staged(of, IBV_WR_RDMA_WRITE); };
  qp.wr_rdma_write_imm = [](ibv_qp_ex* of, std::uint32_t, std::uint64_t, __be32) {
    staged(of, IBV_WR_RDMA_WRITE_WITH_IMM);
  };
  qp.wr_rdma_read = [](ibv_qp_ex* of, std::uint32_t, std::uint64_t) { staged(of, IBV_WR_RDMA_READ); };
  qp.wr_local_inv = [](ibv_qp_ex* of, std::uint32_t) { staged(of, IBV_WR_LOCAL_INV); };
  qp.wr_bind_mw = [](ibv_qp_ex* of, ibv_mw*, std::uint32_t, const ibv_mw_bind_info*) {
    staged(of, IBV_WR_BIND_MW);
  };
  qp.wr_set_sge = [](ibv_qp_ex*, std::uint32_t, std::uint64_t, std::uint32_t bytes) {
    VerbsStub::get().add_data(bytes, false);
  };
  qp.wr_set_sge_list = [](ibv_qp_ex*, std::size_t count, const ibv_sge* list) {
    for (std::size_t i = 0; i < count; ++i) VerbsStub::get().add_data(list[i].length, false);
  };
  qp.wr_set_inline_data = [](ibv_qp_ex*, void*, std::size_t bytes) {
    VerbsStub::get().add_data(bytes, true);
  };
  qp.wr_set_inline_data_list = [](ibv_qp_ex*, std::size_t count, const ibv_data_buf* list) {
    for (std::size_t i = 0; i < count; ++i) VerbsStub::get().add_data(list[i].length, true);
  };
  qp.wr_complete = [](ibv_qp_ex* of) { return VerbsStub::get().post_staged(*of); };
  qp.wr_abort = [](ibv_qp_ex* of) { VerbsStub::get().abort_staged(*of); };
}

}  // namespace

void VerbsStub::provide_extended(bool provide) {
  const std::lock_guard lock(lock_);
  provides_extended_ = provide;
}

ibv_qp* VerbsStub::make_extended(const ibv_qp_init_attr_ex& wanted) {
  {
    const std::lock_guard lock(lock_);
    if (!provides_extended_) {
      errno = EOPNOTSUPP;
      return nullptr;
    }
  }
  ibv_qp_init_attr classic{};
  classic.qp_context = wanted.qp_context;
  classic.cap = wanted.cap;
  ibv_qp* const qp = make(wanted.pd, classic);
  if (qp != nullptr) set_functions(*ibv_qp_to_qp_ex(qp));
  return qp;
}

void VerbsStub::stage(const ibv_qp_ex& qp, ibv_wr_opcode opcode) {
  const std::lock_guard lock(lock_);
  staged_.push_back({.wr_id = qp.wr_id,
                     .queue_pair = qp.qp_base.qp_num,
                     .opcode = opcode,
                     .signaled = (qp.wr_flags & IBV_SEND_SIGNALED) != 0});
}

void VerbsStub::add_data(std::size_t bytes, bool inlined) {
  const std::lock_guard lock(lock_);
  staged_.back().bytes += static_cast<std::uint32_t>(bytes);
  staged_.back().inlined = inlined;
}

int VerbsStub::post_staged(const ibv_qp_ex& qp) {
  const std::lock_guard lock(lock_);
  std::vector<Posted> batch;
  for (const Posted& posted : staged_)
    if (posted.queue_pair == qp.qp_base.qp_num) batch.push_back(posted);
  std::erase_if(staged_, [&](const Posted& posted) { return posted.queue_pair == qp.qp_base.qp_num; });
  if (accepts_ && *accepts_ < batch.size()) {
    accepts_ = 0;
    return ENOMEM;
  }
  for (const Posted& posted : batch) {
    accepts_one();
    execute(posted);
  }
  return 0;
}

void VerbsStub::abort_staged(const ibv_qp_ex& qp) {
  const std::lock_guard lock(lock_);
  std::erase_if(staged_, [&](const Posted& posted) { return posted.queue_pair == qp.qp_base.qp_num; });
}

}  // namespace sluice::rdma::conformance

extern "C" ibv_qp_ex* ibv_qp_to_qp_ex(ibv_qp* qp) {
  return reinterpret_cast<ibv_qp_ex*>(qp);  // the base is the first member
}
