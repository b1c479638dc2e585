// SPDX-License-Identifier: Apache-2.0
//
// The end of packet pools. DPDK writes zeros over all that is freed, also over pages that nobody has ever touched: tens of
// milliseconds for a port's pools, and more under a sanitizer. A process that ends leaves that to the kernel. Setup.
#pragma once

struct rte_mempool;

namespace sluice::rdma::softroce {

/// Null: no effect.
void free_pool(rte_mempool* pool) noexcept;
/// From here on free_pool() leaves pools as they are: the process ends.
void leave_pools(bool leave) noexcept;
bool leaves_pools() noexcept;

}  // namespace sluice::rdma::softroce
