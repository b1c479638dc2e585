// SPDX-License-Identifier: Apache-2.0
#include "pmd/softroce/pools.h"

#include <atomic>

namespace sluice::rdma::softroce {
namespace {

std::atomic<bool> leaving{false};

}  // namespace

void free_pool(rte_mempool* pool) noexcept {
  if (!leaving) rte_mempool_free(pool);
}

void leave_pools(bool leave) noexcept {
  leaving = leave;
}

bool leaves_pools() noexcept {
  return leaving;
}

}  // namespace sluice::rdma::softroce
