// SPDX-License-Identifier: Apache-2.0
//
// The Receive buffers of one connection: posted, gathered to be posted together, or spare. One reactor.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "dataplane/base/fixed_stack.h"
#include "pmd/memory.h"
#include "pmd/queue_pair.h"

namespace sluice::rpcrdma {

class Receives {
 public:
  /// Setup: `region` holds `count` buffers of `buffer_bytes`.
  Receives(rdma::MemoryRegion region, std::uint32_t count, std::uint32_t buffer_bytes)
      : region_(region), buffer_bytes_(buffer_bytes), spare_(count) {}

  /// A connection starts with nothing posted; Receives take messages of up to `message_bytes`.
  void open(std::uint32_t message_bytes) noexcept {
    message_bytes_ = message_bytes;
    spare_.clear();
  }

  std::span<std::byte> buffer(std::uint16_t index) noexcept {
    return region_.bytes.subspan(std::size_t{index} * buffer_bytes_, buffer_bytes_);
  }
  /// With the queue pair.
  std::uint32_t posted() const noexcept { return posted_; }
  /// With those that the next flush() posts.
  std::uint32_t posted_and_staged() const noexcept { return posted_ + staged_; }
  void on_completed() noexcept { --posted_; }

  bool batch_full() const noexcept { return staged_ == kBatch; }
  /// There is room in the batch.
  void stage(std::uint16_t index, std::uint64_t wr_id) noexcept {
    batch_[staged_++] = {wr_id, {buffer(index).data(), message_bytes_, region_.lkey}};
  }
  /// Posts the batch; without one, `qp` may be null. The receive queue has room for every buffer there is; a queue pair in Error takes none.
  void flush(rdma::QueuePair* qp) noexcept {
    if (staged_ == 0) return;
    posted_ += static_cast<std::uint32_t>(qp->post_recv({batch_.data(), staged_}));
    staged_ = 0;
  }

  /// A buffer that is not posted, since the window of credits is smaller.
  void keep_spare(std::uint16_t index) noexcept { spare_.push(index); }
  bool has_spare() const noexcept { return !spare_.empty(); }
  std::uint16_t take_spare() noexcept { return spare_.pop(); }

 private:
  static constexpr std::size_t kBatch = 64;

  rdma::MemoryRegion region_;
  const std::uint32_t buffer_bytes_;
  std::uint32_t message_bytes_ = 0;
  std::uint32_t posted_ = 0;
  std::uint32_t staged_ = 0;
  std::array<rdma::RecvWr, kBatch> batch_;
  FixedStack<std::uint16_t> spare_;  ///< indices of buffers
};

}  // namespace sluice::rpcrdma
