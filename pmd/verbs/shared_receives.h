// SPDX-License-Identifier: Apache-2.0
//
// A shared receive queue for all queue pairs of a device (InfiniBand Architecture Specification volume 1,
// 10.2.9). It holds as many Receives as arrive between two polls, independent of the number of connections
// and their credits. A message is copied to the Receive posted on its queue pair, and the shared Receive is
// reposted immediately. When all shared Receives are consumed, the device sends RNR NAKs.
//
// Only the owning reactor may call. Owns the ibv_srq; the MemoryTable owns the memory and outlives it.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "dataplane/base/invariant.h"
#include "dataplane/base/setup_error.h"
#include "pmd/memory.h"
#include "pmd/verbs/memory.h"

namespace sluice::rdma::verbs {

class SharedReceives {
 public:
  /// Setup. Allocates `count` Receives of `bytes` each from `memory`. Throws SetupError.
  SharedReceives(MemoryTable& memory, ibv_pd* pd, std::uint32_t count, std::uint32_t bytes);
  ~SharedReceives() { detach(); }
  SharedReceives(const SharedReceives&) = delete;
  SharedReceives& operator=(const SharedReceives&) = delete;

  /// Setup. Throws SetupError. Call attach() after MemoryTable::attach(), and detach() before the protection
  /// domain is deallocated.
  void attach(ibv_pd* pd);
  void detach() noexcept;

  ibv_srq* handle() const noexcept { return srq_; }
  std::uint32_t count() const noexcept { return count_; }
  std::span<const std::byte> message(std::uint32_t index, std::uint32_t length) const noexcept {
    SLUICE_INVARIANT_DEBUG(index < count_ && length <= bytes_, buffer_bounds);
    return region_.bytes.subspan(std::size_t{index} * bytes_, length);
  }
  /// Returns a consumed Receive, to be reposted by post() or when a batch is full. Returns false if the
  /// device refuses.
  bool give_back(std::uint32_t index) noexcept;
  bool post() noexcept;

 private:
  static constexpr std::uint32_t kBatch = 16;

  void make_queue(ibv_pd* pd);
  void fill();

  MemoryTable& memory_;
  const std::uint32_t count_;
  const std::uint32_t bytes_;
  MemoryRegion region_;
  ibv_srq* srq_ = nullptr;
  std::uint32_t batched_ = 0;
  std::array<std::uint32_t, kBatch> batch_{};
};

}  // namespace sluice::rdma::verbs
