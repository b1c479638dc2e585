// SPDX-License-Identifier: Apache-2.0
//
// The Receive buffers of one connection: posted, staged to be posted together, or spare. One reactor.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "dataplane/base/buffer_stride.h"
#include "dataplane/base/fixed_stack.h"
#include "pmd/memory.h"
#include "pmd/queue_pair.h"

namespace sluice::rpcrdma {

/// Receives of one connection at a time, gathered so that the driver is called once for a burst.
struct ReceiveStage {
  static constexpr std::size_t kMaxWrs = 64;

  std::array<rdma::RecvWr, kMaxWrs> wrs;
  std::size_t count = 0;
};

class Receives {
 public:
  static constexpr std::uint32_t kNoBound = ~std::uint32_t{0};

  /// Setup: `region` holds `count` buffers of `buffer_bytes`, buffer_stride() apart.
  Receives(rdma::MemoryRegion region, std::uint32_t count, std::uint32_t buffer_bytes)
      : spare_(count),
        base_(region.bytes.data()),
        lkey_(region.lkey),
        buffer_bytes_(buffer_bytes),
        stride_(static_cast<std::uint32_t>(buffer_stride(buffer_bytes))) {}

  /// A connection starts with nothing posted, and posts the first `count`; Receives take messages of up to
  /// `message_bytes`.
  void open(std::uint32_t message_bytes, std::uint32_t count) noexcept {
    message_bytes_ = message_bytes;
    spare_.clear();
    in_use_ = count;
    bound(kNoBound);
  }
  /// How many may be in use. Those that are too many become spare when they come back.
  void bound(std::uint32_t most) noexcept {
    most_ = most;
    surplus_ = in_use_ > most ? in_use_ - most : 0;
  }

  std::span<std::byte> buffer(std::uint16_t index) noexcept {
    return {base_ + std::size_t{index} * stride_, buffer_bytes_};
  }
  /// With the queue pair, or staged.
  std::uint32_t posted() const noexcept { return posted_; }
  void on_completed() noexcept { --posted_; }

  /// There is room in `stage`, and nothing of another connection.
  void stage(std::uint16_t index, std::uint64_t wr_id, ReceiveStage& stage) noexcept {
    stage.wrs[stage.count++] = {wr_id, {buffer(index).data(), message_bytes_, lkey_}};
    ++posted_;
  }
  /// Posts what is staged. The receive queue has room for every buffer there is; a queue pair in Error takes
  /// none.
  void flush(rdma::QueuePair& qp, ReceiveStage& stage) noexcept {
    posted_ -= static_cast<std::uint32_t>(stage.count - qp.post_recv({stage.wrs.data(), stage.count}));
    stage.count = 0;
  }

  /// A buffer that has come back. True: it is one too many, and is kept.
  bool keep_surplus(std::uint16_t index) noexcept {
    if (surplus_ == 0) [[likely]]
      return false;
    --surplus_;
    --in_use_;
    spare_.push(index);
    return true;
  }
  /// How many of `count` buffers, none or one, will be posted when they come back.
  std::uint32_t returning(std::uint32_t count) const noexcept { return surplus_ == 0 ? count : 0; }
  bool may_use_spare() const noexcept { return !spare_.empty() && in_use_ < most_; }
  std::uint16_t use_spare() noexcept {
    ++in_use_;
    return spare_.pop();
  }

 private:
  FixedStack<std::uint16_t> spare_;  ///< indices of buffers
  // Every message needs the rest. They are the end of one cache line of the link's, and the first half of the next.
  std::byte* const base_;  ///< of the first buffer
  const rdma::Lkey lkey_;
  const std::uint32_t buffer_bytes_;
  const std::uint32_t stride_;
  std::uint32_t message_bytes_ = 0;
  std::uint32_t posted_ = 0;   ///< and staged
  std::uint32_t surplus_ = 0;  ///< buffers in use beyond most_
  std::uint32_t in_use_ = 0;   ///< posted, staged, or with a message that is being served
  std::uint32_t most_ = kNoBound;
};

}  // namespace sluice::rpcrdma
