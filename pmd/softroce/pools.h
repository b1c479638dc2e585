// SPDX-License-Identifier: Apache-2.0
//
// Destruction of packet pools. DPDK zeroes all freed memory, including pages that were never accessed, which
// takes tens of milliseconds for a port's pools and more under a sanitizer. A process that exits leaves that
// to the kernel. Setup.
#pragma once

struct rte_mempool;

namespace sluice::rdma::softroce {

/// Frees the pool. A null pool has no effect.
void free_pool(rte_mempool* pool) noexcept;
/// Sets whether free_pool() leaves pools untouched because the process exits.
void leave_pools(bool leave) noexcept;
bool leaves_pools() noexcept;

}  // namespace sluice::rdma::softroce
