// SPDX-License-Identifier: Apache-2.0
#include "pmd/verbs/shared_receives.h"

#include <cerrno>
#include <cstring>
#include <string>

#include "dataplane/base/setup_error.h"
#include "pmd/verbs/completion_queue.h"

namespace sluice::rdma::verbs {

SharedReceives::SharedReceives(MemoryTable& memory, ibv_pd* pd, std::uint32_t count, std::uint32_t bytes)
    : memory_(memory), count_(count), bytes_(bytes) {
  make_queue(pd);  // first, so that no memory is allocated if `count` is above the device's limit
  try {
    region_ = memory.allocate(std::size_t{count} * bytes);
  } catch (...) {
    detach();
    throw;
  }
  fill();
}

void SharedReceives::attach(ibv_pd* pd) {
  make_queue(pd);
  fill();
}

void SharedReceives::make_queue(ibv_pd* pd) {
  ibv_srq_init_attr wanted{};
  wanted.attr.max_wr = count_;
  wanted.attr.max_sge = 1;
  srq_ = ibv_create_srq(pd, &wanted);
  if (srq_ != nullptr) return;
  const int failed = errno;
  ibv_device_attr limits{};
  ibv_query_device(pd->context, &limits);
  throw SetupError(
      "The RDMA device " + std::string(ibv_get_device_name(pd->context->device)) +
      " cannot create a shared receive queue with " + std::to_string(count_) + " Receives (" +
      std::strerror(failed) + "; its limit is " + std::to_string(limits.max_srq_wr) +
      "): lower shared_receives in [device], or set it to 0 for a receive queue per connection.");
}

void SharedReceives::fill() {
  batched_ = 0;
  bool taken = true;
  for (std::uint32_t i = 0; taken && i < count_; ++i) taken = give_back(i);
  if (taken && post()) return;
  const std::string device = ibv_get_device_name(srq_->context->device);
  detach();
  throw SetupError("The RDMA device " + device + " refuses to post Receives: see the kernel log.");
}

void SharedReceives::detach() noexcept {
  if (srq_ != nullptr) ibv_destroy_srq(srq_);
  srq_ = nullptr;
}

bool SharedReceives::give_back(std::uint32_t index) noexcept {
  batch_[batched_++] = index;
  return batched_ < kBatch || post();
}

bool SharedReceives::post() noexcept {
  if (batched_ == 0 || srq_ == nullptr) return true;
  std::array<ibv_recv_wr, kBatch> chain;
  std::array<ibv_sge, kBatch> sges;
  for (std::uint32_t i = 0; i < batched_; ++i) {
    const std::byte* buffer = region_.bytes.data() + std::size_t{batch_[i]} * bytes_;
    sges[i] = {.addr = reinterpret_cast<std::uintptr_t>(buffer),
               .length = bytes_,
               .lkey = memory_.device_lkey(region_.lkey)};
    chain[i] = {.wr_id = Cookie{.receive = true, .index = batch_[i]}.packed(),
                .next = i + 1 < batched_ ? &chain[i + 1] : nullptr,
                .sg_list = &sges[i],
                .num_sge = 1};
  }
  batched_ = 0;
  ibv_recv_wr* refused = nullptr;
  return ibv_post_srq_recv(srq_, chain.data(), &refused) == 0;
}

}  // namespace sluice::rdma::verbs
