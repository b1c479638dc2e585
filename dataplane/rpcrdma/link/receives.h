// SPDX-License-Identifier: Apache-2.0
//
// Receive buffers of one connection: posted, staged for posting in a burst, or spare. Confined to one
// reactor.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "dataplane/base/cache_line.h"
#include "dataplane/base/fixed_containers.h"
#include "dataplane/base/invariant.h"
#include "pmd/memory.h"
#include "pmd/queue_pair.h"

namespace sluice::rpcrdma {

/// Receives of one connection at a time, gathered so that the driver is called once per burst.
struct ReceiveStage {
  static constexpr std::size_t kMaxWrs = 64;

  std::array<rdma::RecvWr, kMaxWrs> wrs;
  std::size_t count = 0;
};

class Receives {
 public:
  static constexpr std::uint32_t kNoBound = ~std::uint32_t{0};

  /// Called at setup. `region` holds `count` buffers of `buffer_bytes`, buffer_stride() apart.
  Receives(rdma::MemoryRegion region, std::uint32_t count, std::uint32_t buffer_bytes)
      : spare_(count),
        base_(region.bytes.data()),
        lkey_(region.lkey),
        buffer_bytes_(buffer_bytes),
        stride_(static_cast<std::uint32_t>(buffer_stride(buffer_bytes))) {}

  /// Starts a connection with nothing posted; the caller posts the first `count` buffers. Receives accept
  /// messages of up to `message_bytes`.
  void open(std::uint32_t message_bytes, std::uint32_t count) noexcept {
    message_bytes_ = message_bytes;
    static_cast<void>(SLUICE_INVARIANT(posted_ == 0 && message_bytes <= buffer_bytes_, pool_balance));
    spare_.clear();
    in_use_ = count;
    bound(kNoBound);
  }
  /// Limits the number of buffers in use. Surplus buffers become spare when they are returned.
  void bound(std::uint32_t most) noexcept {
    most_ = most;
    surplus_ = in_use_ > most ? in_use_ - most : 0;
  }

  std::span<std::byte> buffer(std::uint16_t index) noexcept {
    return {base_ + std::size_t{index} * stride_, buffer_bytes_};
  }
  /// Returns the number of buffers that are posted to the queue pair or staged.
  std::uint32_t posted() const noexcept { return posted_; }
  void on_completed() noexcept {
    SLUICE_INVARIANT_DEBUG(posted_ > 0, pool_balance);
    --posted_;
  }

  /// Stages a buffer. `stage` must have room and hold no buffer of another connection.
  void stage(std::uint16_t index, std::uint64_t wr_id, ReceiveStage& stage) noexcept {
    SLUICE_INVARIANT_DEBUG(stage.count < ReceiveStage::kMaxWrs, ring_index);
    SLUICE_INVARIANT_DEBUG(posted_ < in_use_, pool_balance);
    stage.wrs[stage.count++] = {wr_id, {buffer(index).data(), message_bytes_, lkey_}};
    ++posted_;
  }
  /// Posts the staged buffers. The receive queue has room for all buffers; a queue pair in Error accepts
  /// none.
  void flush(rdma::QueuePair& qp, ReceiveStage& stage) noexcept {
    SLUICE_INVARIANT_DEBUG(stage.count <= posted_, pool_balance);
    posted_ -= static_cast<std::uint32_t>(stage.count - qp.post_recv({stage.wrs.data(), stage.count}));
    stage.count = 0;
  }

  /// Takes back a returned buffer. Returns true if it is surplus and was kept as a spare.
  bool keep_surplus(std::uint16_t index) noexcept {
    if (surplus_ == 0) [[likely]]
      return false;
    --surplus_;
    SLUICE_INVARIANT_DEBUG(in_use_ > 0, pool_balance);
    --in_use_;
    spare_.push(index);
    return true;
  }
  /// Returns how many of `count` returned buffers, zero or one, will be posted.
  std::uint32_t returning(std::uint32_t count) const noexcept { return surplus_ == 0 ? count : 0; }
  bool may_use_spare() const noexcept { return !spare_.empty() && in_use_ < most_; }
  std::uint16_t use_spare() noexcept {
    ++in_use_;
    SLUICE_INVARIANT_DEBUG(in_use_ <= most_, pool_balance);
    return spare_.pop();
  }

 private:
  FixedStack<std::uint16_t> spare_;  ///< indices of spare buffers
  // Every message uses the remaining members. They fill the end of one cache line of the link and the first
  // half of the next.
  std::byte* const base_;  ///< first buffer
  const rdma::Lkey lkey_;
  const std::uint32_t buffer_bytes_;
  const std::uint32_t stride_;
  std::uint32_t message_bytes_ = 0;
  std::uint32_t posted_ = 0;   ///< includes staged buffers
  std::uint32_t surplus_ = 0;  ///< buffers in use beyond most_
  std::uint32_t in_use_ = 0;   ///< posted, staged, or holding a message that is being served
  std::uint32_t most_ = kNoBound;
};

}  // namespace sluice::rpcrdma
