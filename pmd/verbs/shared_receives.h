// SPDX-License-Identifier: Apache-2.0
//
// Receives that all queue pairs of a device share (InfiniBand Architecture Specification volume 1, 10.2.9):
// the device holds as many as arrive between two polls, whatever the number of connections and their credits.
// A message is copied from here to the Receive that its queue pair has posted, and the shared one goes back
// at once. While none is left, the device asks peers to wait (RNR NAK).
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "dataplane/base/setup_error.h"
#include "pmd/memory.h"
#include "pmd/verbs/memory.h"

namespace sluice::rdma::verbs {

class SharedReceives {
 public:
  /// Setup; SetupError. `count` Receives of `bytes` each, in memory of the table's.
  SharedReceives(MemoryTable& memory, ibv_pd* pd, std::uint32_t count, std::uint32_t bytes);
  ~SharedReceives() { detach(); }
  SharedReceives(const SharedReceives&) = delete;
  SharedReceives& operator=(const SharedReceives&) = delete;

  /// Setup; SetupError. After MemoryTable::attach(); and detach() before the protection domain goes.
  void attach(ibv_pd* pd);
  void detach() noexcept;

  ibv_srq* handle() const noexcept { return srq_; }
  std::uint32_t count() const noexcept { return count_; }
  std::span<const std::byte> message(std::uint32_t index, std::uint32_t length) const noexcept {
    return region_.bytes.subspan(std::size_t{index} * bytes_, length);
  }
  /// What post() hands to the device again. False when it refuses.
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
