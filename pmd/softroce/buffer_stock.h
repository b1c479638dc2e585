// SPDX-License-Identifier: Apache-2.0
//
// Buffers taken out of a pool many at a time, which costs as much as taking one. Belongs to one lane.
#pragma once

#include <rte_mbuf.h>
#include <rte_mempool.h>

#include <array>
#include <cstdint>

#include "pmd/softroce/pool_sizes.h"

namespace sluice::rdma::softroce {

class BufferStock {
 public:
  BufferStock() = default;
  BufferStock(const BufferStock&) = delete;
  BufferStock& operator=(const BufferStock&) = delete;

  /// Setup. What is in the stock at the end is freed with the pool.
  void open(rte_mempool* pool) noexcept { pool_ = pool; }
  /// Null: the pool is empty.
  rte_mbuf* take() noexcept {
    if (count_ == 0) {
      if (rte_pktmbuf_alloc_bulk(pool_, buffers_.data(), kStockBuffers) != 0) return rte_pktmbuf_alloc(pool_);
      count_ = kStockBuffers;
    }
    return buffers_[--count_];
  }

 private:
  rte_mempool* pool_ = nullptr;
  std::uint32_t count_ = 0;
  std::array<rte_mbuf*, kStockBuffers> buffers_{};
};

}  // namespace sluice::rdma::softroce
