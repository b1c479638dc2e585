// SPDX-License-Identifier: Apache-2.0
//
// Buffers taken from a pool in batches, because taking a batch costs as much as taking one buffer. Belongs to
// one lane.
#pragma once

#include <array>
#include <cstdint>

#include "pmd/softroce/pool_sizes.h"

struct rte_mbuf;
struct rte_mempool;

namespace sluice::rdma::softroce {

class BufferStock {
 public:
  BufferStock() = default;
  BufferStock(const BufferStock&) = delete;
  BufferStock& operator=(const BufferStock&) = delete;

  /// Setup. Buffers left in the stock are freed together with the pool.
  void open(rte_mempool* pool) noexcept { pool_ = pool; }
  /// Returns null if the pool is empty. Defined in transmitter.cc, where it is inlined.
  rte_mbuf* take() noexcept;

 private:
  rte_mempool* pool_ = nullptr;
  std::uint32_t count_ = 0;
  std::array<rte_mbuf*, kStockBuffers> buffers_{};
};

}  // namespace sluice::rdma::softroce
