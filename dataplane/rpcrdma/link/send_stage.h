// SPDX-License-Identifier: Apache-2.0
//
// Work requests of one connection, gathered during a turn so that the driver is called once for a burst. One
// reactor.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "dataplane/rpcrdma/wire/header.h"
#include "pmd/work_request.h"

namespace sluice::rpcrdma {

class SendStage {
 public:
  /// One call's largest set: a Read or Write per segment or piece boundary, and its Send.
  static constexpr std::size_t kMaxWrs = 512;
  static constexpr std::size_t kMaxSges = 1024;

  struct Mark {
    std::size_t wrs = 0;
    std::size_t sges = 0;
  };

  void set_max_sge(std::uint32_t max_sge) noexcept { max_sge_ = max_sge; }
  std::uint32_t max_sge() const noexcept { return max_sge_; }
  std::size_t size() const noexcept { return wr_count_; }
  bool empty() const noexcept { return wr_count_ == 0; }
  Mark mark() const noexcept { return {wr_count_, sge_count_}; }
  void rollback(Mark mark) noexcept {
    wr_count_ = mark.wrs;
    sge_count_ = mark.sges;
  }
  void clear() noexcept { rollback({}); }
  std::span<const rdma::SendWr> wrs() const noexcept { return {wrs_.data(), wr_count_}; }
  rdma::SendWr& last() noexcept { return wrs_[wr_count_ - 1]; }

  /// Starts a work request; pieces follow by append(). False when the stage is full.
  bool begin(rdma::SendOpcode opcode, std::uint64_t wr_id, std::uint8_t flags) noexcept {
    if (wr_count_ == kMaxWrs) return false;
    wrs_[wr_count_++] = {
        .wr_id = wr_id, .sges = {sges_.data() + sge_count_, 0}, .opcode = opcode, .flags = flags};
    return true;
  }

  /// Adds a piece to the last work request; a piece that continues the previous one extends it.
  bool append(const rdma::Sge& piece) noexcept {
    rdma::SendWr& wr = last();
    const std::size_t used = wr.sges.size();
    if (used > 0) {
      rdma::Sge& previous = sges_[sge_count_ - 1];
      if (previous.address + previous.length == piece.address && previous.lkey == piece.lkey) {
        previous.length += piece.length;
        return true;
      }
    }
    if (used == max_sge_ || sge_count_ == kMaxSges) return false;
    sges_[sge_count_++] = piece;
    wr.sges = {wr.sges.data(), used + 1};
    return true;
  }

  /// RDMA Read or Write between `remote` (its first piece.length bytes) and `piece`. Continues the last work
  /// request where that ends at this remote address and begin_transfers() was not called in between.
  bool transfer(rdma::SendOpcode opcode, std::uint64_t wr_id, const Segment& remote,
                const rdma::Sge& piece) noexcept {
    if (continues_ && last().rkey == remote.handle && remote_end_ == remote.offset && append(piece)) {
      remote_end_ += piece.length;
      return true;
    }
    if (!begin(opcode, wr_id, 0) || !append(piece)) return false;
    last().rkey = remote.handle;
    last().remote_address = remote.offset;
    remote_end_ = remote.offset + piece.length;
    continues_ = true;
    return true;
  }
  void begin_transfers() noexcept { continues_ = false; }

 private:
  std::size_t wr_count_ = 0;
  std::size_t sge_count_ = 0;
  std::uint32_t max_sge_ = 16;
  bool continues_ = false;
  std::uint64_t remote_end_ = 0;
  std::array<rdma::SendWr, kMaxWrs> wrs_;
  std::array<rdma::Sge, kMaxSges> sges_;
};

}  // namespace sluice::rpcrdma
