// SPDX-License-Identifier: Apache-2.0
//
// Work requests of one connection, gathered during a loop iteration so that the driver is called once per
// burst. Confined to one reactor.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "dataplane/base/invariant.h"
#include "dataplane/rpcrdma/link/wr_id.h"
#include "dataplane/rpcrdma/wire/header.h"
#include "pmd/work_request.h"

namespace sluice::rpcrdma {

class SendStage {
 public:
  /// Maximum work requests of one call: a Read or Write per segment or piece boundary, and its Send.
  static constexpr std::size_t kMaxWrs = 512;
  static constexpr std::size_t kMaxSges = 1024;
  /// Maximum consecutive unsignaled Sends. Their buffers are held until the completion of the signaled Send
  /// that follows.
  static constexpr std::uint32_t kMaxSilent = 15;

  /// Fill level of the stage. It is one word because loading two words that were just stored as one defeats
  /// store forwarding.
  class Mark {
   public:
    std::size_t wrs() const noexcept { return used_ & kWrs; }
    std::size_t sges() const noexcept { return used_ >> kSgeShift; }

   private:
    friend class SendStage;
    static constexpr unsigned kSgeShift = 32;
    static constexpr std::uint64_t kWrs = (std::uint64_t{1} << kSgeShift) - 1;
    static constexpr std::uint64_t kOneWr = 1;
    static constexpr std::uint64_t kOneSge = std::uint64_t{1} << kSgeShift;
    std::uint64_t used_ = 0;
  };

  /// Sets the largest number of pieces of a work request, and of an RDMA Read, for which devices have another
  /// limit.
  void set_max_sge(std::uint32_t max_sge, std::uint32_t max_read_sge) noexcept {
    max_sge_ = max_sge;
    max_read_sge_ = max_read_sge < max_sge ? max_read_sge : max_sge;
  }
  std::uint32_t max_sge() const noexcept { return max_sge_; }
  std::size_t size() const noexcept { return mark_.wrs(); }
  bool empty() const noexcept { return size() == 0; }
  Mark mark() const noexcept { return mark_; }
  void rollback(Mark mark) noexcept {
    SLUICE_INVARIANT_DEBUG(mark.wrs() <= size() && mark.sges() <= mark_.sges(), ring_index);
    mark_ = mark;
    run_left_ = 0;
  }
  void clear() noexcept { rollback({}); }
  std::span<const rdma::SendWr> wrs() const noexcept { return {wrs_.data(), size()}; }
  rdma::SendWr& last() noexcept {
    SLUICE_INVARIANT_DEBUG(!empty(), ring_index);
    return wrs_[size() - 1];
  }

  /// Starts a work request, whose pieces are added by append(). Returns false if the stage is full.
  bool begin(rdma::SendOpcode opcode, std::uint64_t wr_id, std::uint8_t flags) noexcept {
    if (size() == kMaxWrs) return false;
    wrs_[size()] = {
        .wr_id = wr_id, .sges = {sges_.data() + mark_.sges(), 0}, .opcode = opcode, .flags = flags};
    mark_.used_ += Mark::kOneWr;
    run_left_ = 0;
    return true;
  }

  /// Adds a Send of one piece; the caller has checked that there is room for both. Consecutive Sends with
  /// identifiers of one kind share the completion of the last one, because a queue pair completes them in
  /// order. Returns the index of the previous Send if it no longer has a completion of its own unless it
  /// fails, else kNoWr.
  [[gnu::always_inline]] std::uint16_t add_send(std::uint64_t wr_id, rdma::Sge piece) noexcept {
    SLUICE_INVARIANT_DEBUG(size() < kMaxWrs && mark_.sges() < kMaxSges, ring_index);
    rdma::SendWr* const wr = &wrs_[size()];
    std::uint16_t before = kNoWr;
    if (run_left_ > 0 && WrId::same_but_index(wr[-1].wr_id, wr_id)) {
      wr[-1].flags = 0;
      before = WrId::index_of(wr[-1].wr_id);
      --run_left_;
    } else {
      run_left_ = kMaxSilent;
    }
    rdma::Sge& first = sges_[mark_.sges()];
    first = piece;
    *wr = {.wr_id = wr_id, .sges = {&first, 1}, .opcode = rdma::SendOpcode::Send, .flags = rdma::kSignaled};
    mark_.used_ += Mark::kOneWr + Mark::kOneSge;
    return before;
  }

  /// Adds a piece to the last work request. A piece that continues the previous one extends it. The piece is
  /// passed by value, in registers, because a copy of fields that were just stored would stall on the stores.
  bool append(rdma::Sge piece) noexcept { return append(piece, max_sge_); }

  /// Adds an RDMA Read or Write between `remote` (its first piece.length bytes) and `piece`. Extends the last
  /// work request if that ends at this remote address and begin_transfers() was not called in between.
  bool transfer(rdma::SendOpcode opcode, std::uint64_t wr_id, const Segment& remote,
                rdma::Sge piece) noexcept {
    const std::uint32_t most = opcode == rdma::SendOpcode::RdmaRead ? max_read_sge_ : max_sge_;
    if (continues_ && last().rkey == remote.handle && remote_end_ == remote.offset && append(piece, most)) {
      remote_end_ += piece.length;
      return true;
    }
    if (!begin(opcode, wr_id, 0) || !append(piece, most)) return false;
    last().rkey = remote.handle;
    last().remote_address = remote.offset;
    remote_end_ = remote.offset + piece.length;
    continues_ = true;
    return true;
  }
  void begin_transfers() noexcept { continues_ = false; }

 private:
  [[gnu::always_inline]] bool append(rdma::Sge piece, std::uint32_t most) noexcept {
    rdma::SendWr& wr = last();
    const std::size_t used = wr.sges.size();
    SLUICE_INVARIANT_DEBUG(used <= mark_.sges() && mark_.sges() <= kMaxSges, ring_index);
    if (used > 0) {
      rdma::Sge& previous = sges_[mark_.sges() - 1];
      if (previous.address + previous.length == piece.address && previous.lkey == piece.lkey) {
        previous.length += piece.length;
        return true;
      }
    }
    if (used >= most || mark_.sges() == kMaxSges) return false;
    sges_[mark_.sges()] = piece;
    mark_.used_ += Mark::kOneSge;
    wr.sges = {wr.sges.data(), used + 1};
    return true;
  }

  Mark mark_;
  std::uint32_t run_left_ = 0;  ///< Sends that may still share the completion of the last Send
  std::uint32_t max_sge_ = 16;
  std::uint32_t max_read_sge_ = 16;
  std::array<rdma::SendWr, kMaxWrs> wrs_;
  std::array<rdma::Sge, kMaxSges> sges_;
  // State of the last transfer().
  bool continues_ = false;
  std::uint64_t remote_end_ = 0;
};

}  // namespace sluice::rpcrdma
