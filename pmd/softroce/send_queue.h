// SPDX-License-Identifier: Apache-2.0
//
// The send queue of a queue pair: work requests from their posting to their completion, and the memory that
// they refer to. It is not a FixedRing, because retransmission moves backwards within it.
//
// The indices are free-running: head <= next <= started <= tail. Entries before `started` have PSNs. `next`
// is the entry to send. During retransmission it is less than `started` and has packets, because entries
// without packets were executed. The requester moves the indices.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <span>

#include "dataplane/base/fixed_containers.h"
#include "dataplane/base/invariant.h"
#include "dataplane/base/small_algorithms.h"
#include "pmd/softroce/softroce.h"

namespace sluice::rdma::softroce {

class MemoryTable;

/// Size of the largest message of a work request, in bytes.
inline constexpr std::uint32_t kMaxSendMessageBytes = 1u << 30;

struct SendEntry {
  std::uint64_t wr_id = 0;
  std::uint64_t remote_address = 0;
  std::uint32_t bytes = 0;
  Rkey rkey{};
  std::uint32_t immediate = 0;
  std::uint32_t first_psn = 0;
  std::uint32_t packets = 0;           ///< number of PSNs; zero for local work
  std::uint32_t packets_received = 0;  ///< RdmaRead: number of response packets before the first missing one
  std::uint16_t sge_count = 0;
  SendOpcode opcode = SendOpcode::Send;
  std::uint8_t flags = 0;
  bool done = false;  ///< local work: it was executed
  WcStatus status = WcStatus::Success;
  std::uint64_t read_until = 0;  ///< end of reading of its memory, for Transmitter::lets_go_of()
};

class SendQueue {
 public:
  SendQueue(std::uint32_t depth, std::uint32_t max_sge)
      : depth_(depth),
        max_sge_(max_sge),
        mask_(std::bit_ceil(depth) - 1),
        entries_(std::size_t{mask_} + 1),
        sges_((std::size_t{mask_} + 1) * max_sge) {}

  std::uint32_t depth() const noexcept { return depth_; }
  std::uint32_t max_sge() const noexcept { return max_sge_; }
  std::uint32_t room() const noexcept { return depth_ - (tail - head); }
  bool empty() const noexcept { return head == tail; }
  SendEntry& entry(std::uint32_t index) noexcept {
    SLUICE_INVARIANT_DEBUG(index - head <= tail - head, ring_index);
    return entries_[index & mask_];
  }
  const SendEntry& entry(std::uint32_t index) const noexcept {
    SLUICE_INVARIANT_DEBUG(index - head <= tail - head, ring_index);
    return entries_[index & mask_];
  }
  /// Returns whether the indices are in order.
  bool ordered() const noexcept {
    return next - head <= started - head && started - head <= tail - head && tail - head <= depth_;
  }

  /// Adds a work request, whose status says whether it can be executed. `memory` checks its local memory, and
  /// a message has at most kMaxSendMessageBytes.
  void add(const SendWr& wr, const MemoryTable& memory) noexcept;
  /// Writes the entry `number` after the last one, a message in one packet with this PSN, and returns it. The
  /// entry is in the queue only after count_sent().
  SendEntry& prepare(std::uint32_t number, const SendWr& wr, const Sge& sge, std::uint32_t psn) noexcept {
    SLUICE_INVARIANT_DEBUG(number < room() && next == tail, ring_index);
    *sges_of(tail + number) = sge;
    return entries_[(tail + number) & mask_] = {.wr_id = wr.wr_id,
                                                .remote_address = wr.remote_address,
                                                .bytes = sge.length,
                                                .rkey = wr.rkey,
                                                .immediate = wr.immediate,
                                                .first_psn = psn,
                                                .packets = 1,
                                                .sge_count = 1,
                                                .opcode = wr.opcode,
                                                .flags = wr.flags};
  }
  /// Adds the first `count` entries of prepare(), whose packets were sent.
  void count_sent(std::uint32_t count) noexcept { next = started = tail += count; }
  /// Returns the index of the started entry that the PSN belongs to, or `started` if there is none.
  std::uint32_t find(std::uint32_t psn) const noexcept;
  /// Returns `bytes` of the memory of an entry with one Sge, from `offset` on.
  std::span<const std::byte> piece(std::uint32_t index, std::uint32_t offset, std::uint32_t bytes) noexcept {
    SLUICE_INVARIANT_DEBUG(entry(index).sge_count == 1 && bytes <= entry(index).bytes - offset,
                           buffer_bounds);
    return {sges_of(index)->address + offset, bytes};
  }
  /// Returns `bytes` of an entry's memory from `offset` on, valid until the next call. Continues at the
  /// position of the last call, so that it need not search from the first Sge.
  std::span<const std::span<const std::byte>> gather(std::uint32_t index, std::uint32_t offset,
                                                     std::uint32_t bytes) noexcept;

  std::uint32_t head = 0;
  std::uint32_t next = 0;
  std::uint32_t started = 0;
  std::uint32_t tail = 0;

 private:
  Sge* sges_of(std::uint32_t index) noexcept { return &sges_[std::size_t{index & mask_} * max_sge_]; }

  const std::uint32_t depth_;
  const std::uint32_t max_sge_;
  const std::uint32_t mask_;
  std::uint32_t gathered_ = 0;  ///< entry, Sge and offset of that Sge at which gather() has stopped
  std::uint32_t gathered_sge_ = 0;
  std::uint32_t gathered_sge_start_ = 0;
  RingStorage<SendEntry> entries_;
  RingStorage<Sge> sges_;
  std::array<std::span<const std::byte>, 32> pieces_;
};

}  // namespace sluice::rdma::softroce
