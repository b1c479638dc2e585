// SPDX-License-Identifier: Apache-2.0
#include "pmd/verbs/completion_queue.h"

namespace sluice::rdma::verbs {

std::unique_ptr<CompletionQueue> CompletionQueue::create(ibv_context* context, ibv_comp_channel* channel,
                                                         std::uint32_t entries, bool extended,
                                                         bool in_software) {
  if (extended) {
    ibv_cq_init_attr_ex attributes{};
    attributes.cqe = entries;
    attributes.channel = channel;
    attributes.wc_flags = IBV_WC_EX_WITH_BYTE_LEN | IBV_WC_EX_WITH_IMM | IBV_WC_EX_WITH_QP_NUM;
    // Not IBV_CREATE_CQ_ATTR_SINGLE_THREADED: a provider removes the completions of a queue pair that the set-up thread destroys.
    ibv_cq_ex* const cq = ibv_create_cq_ex(context, &attributes);
    if (cq != nullptr)
      return std::unique_ptr<CompletionQueue>(
          new CompletionQueue(ibv_cq_ex_to_cq(cq), cq, entries, in_software));
  }
  ibv_cq* cq = ibv_create_cq(context, static_cast<int>(entries), nullptr, channel, 0);
  if (cq == nullptr) return nullptr;
  return std::unique_ptr<CompletionQueue>(new CompletionQueue(cq, nullptr, entries, in_software));
}

CompletionQueue::~CompletionQueue() {
  ibv_destroy_cq(cq_);
}

bool CompletionQueue::take_room(std::uint32_t entries) noexcept {
  if (entries_ - used_ < entries) return false;
  used_ += entries;
  return true;
}

}  // namespace sluice::rdma::verbs
