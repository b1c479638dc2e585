// SPDX-License-Identifier: Apache-2.0
//
// Completion queues that cannot overrun: a queue pair reserves entries for everything it can have
// outstanding. Only the owning reactor may call; create() is setup and returns null on error. The caller owns
// the CompletionQueue; the context and the channel must outlive it. Sizes in entries.
#pragma once

#include <endian.h>
#include <infiniband/verbs.h>

#include <cstdint>

#include "dataplane/base/invariant.h"
#include "dataplane/base/owned.h"

namespace sluice::rdma::verbs {

/// The wr_id passed to the provider: slot of the queue pair in the device, generation of that slot, send or
/// receive queue, and index in that queue.
struct Cookie {
  std::uint16_t slot = 0;
  std::uint16_t generation = 0;  ///< 15 bits
  bool receive = false;
  std::uint32_t index = 0;

  static constexpr std::uint16_t kGenerations = 1u << 15;
  constexpr std::uint64_t packed() const noexcept {
    return std::uint64_t{slot} << 48 | std::uint64_t{generation} << 33 | std::uint64_t{receive} << 32 | index;
  }
  static constexpr Cookie unpacked(std::uint64_t word) noexcept {
    return {static_cast<std::uint16_t>(word >> 48), static_cast<std::uint16_t>(word >> 33 & 0x7FFF),
            (word >> 32 & 1) != 0, static_cast<std::uint32_t>(word)};
  }
};

/// A completion of either interface. Field validity is as in ibv_wc.
struct Completion {
  std::uint64_t wr_id = 0;
  std::uint32_t queue_pair = 0;  ///< QPN
  ibv_wc_status status = IBV_WC_SUCCESS;
  bool in_receive = true;  ///< Receive: the data is in its buffer; false: an RDMA Write with immediate
  std::uint32_t byte_len = 0;
  std::uint32_t immediate = 0;     ///< host byte order
  std::uint32_t invalidated = 0;   ///< rkey
  unsigned flags = 0;              ///< ibv_wc_flags
  std::uint32_t vendor_error = 0;  ///< the provider's reason of an error
};

class CompletionQueue {
 public:
  /// Setup. Returns null if the device refuses. `extended` requests the extended interface, if the provider
  /// has it.
  static Owned<CompletionQueue> create(ibv_context* context, ibv_comp_channel* channel, std::uint32_t entries,
                                       bool extended, bool in_software);
  ~CompletionQueue();
  CompletionQueue(const CompletionQueue&) = delete;
  CompletionQueue& operator=(const CompletionQueue&) = delete;

  ibv_cq* handle() const noexcept { return cq_; }
  std::uint32_t entries() const noexcept { return entries_; }
  /// Returns the number of unreserved entries.
  std::uint32_t room() const noexcept { return entries_ - used_; }
  bool extended() const noexcept { return extended_ != nullptr; }

  /// Reserves entries for a queue pair. Returns false if fewer than `entries` are free.
  bool take_room(std::uint32_t entries) noexcept;
  /// Releases the entries of a destroyed queue pair once the queue was seen empty, because completions may
  /// remain.
  void leave_room(std::uint32_t entries) noexcept {
    static_cast<void>(SLUICE_INVARIANT(entries <= used_ - left_, ring_index));
    left_ += entries;
  }

  /// Requests an event on the channel for the next completion. Returns false on error.
  bool arm() noexcept { return ibv_req_notify_cq(cq_, 0) == 0; }

  /// Calls `each(const Completion&)` for up to `limit` completions and returns their number.
  template <typename Each>
  std::size_t poll(std::size_t limit, const Each& each) noexcept {
    std::size_t count = 0;
    SLUICE_INVARIANT_DEBUG(left_ <= used_ && used_ <= entries_, ring_index);
    if (extended_ == nullptr)
      count = poll_classic(limit, each);
    else if (!in_software_)
      count = poll_extended(limit, each);
    else
      while (count < limit && poll_extended(1, each) == 1) ++count;
    // The queue is empty, so no completions of destroyed queue pairs remain.
    if (count < limit && left_ > 0) used_ -= left_, left_ = 0;
    SLUICE_INVARIANT_DEBUG(count <= limit, ring_index);
    return count;
  }

 private:
  CompletionQueue(ibv_cq* cq, ibv_cq_ex* extended, std::uint32_t entries, bool in_software)
      : cq_(cq), extended_(extended), entries_(entries), in_software_(in_software) {}

  unsigned flags_of(unsigned given) const noexcept {
    // The kernel's "with invalidate" bit is user space's IBV_WC_IP_CSUM_OK, which RC completions never have.
    return in_software_ && (given & IBV_WC_IP_CSUM_OK) ? given | IBV_WC_WITH_INV : given;
  }

  template <typename Each>
  std::size_t poll_extended(std::size_t limit, const Each& each) noexcept {
    ibv_poll_cq_attr attributes{};
    if (limit == 0 || ibv_start_poll(extended_, &attributes) != 0) return 0;
    std::size_t count = 0;
    do {
      Completion completion{.wr_id = extended_->wr_id,
                            .queue_pair = ibv_wc_read_qp_num(extended_),
                            .status = extended_->status};
      if (completion.status == IBV_WC_SUCCESS && Cookie::unpacked(completion.wr_id).receive) {
        completion.byte_len = ibv_wc_read_byte_len(extended_);
        completion.in_receive = ibv_wc_read_opcode(extended_) != IBV_WC_RECV_RDMA_WITH_IMM;
        completion.flags = flags_of(ibv_wc_read_wc_flags(extended_));
        if (completion.flags & IBV_WC_WITH_INV)
          completion.invalidated = ibv_wc_read_invalidated_rkey(extended_);
        else if (completion.flags & IBV_WC_WITH_IMM)
          completion.immediate = be32toh(ibv_wc_read_imm_data(extended_));
      } else if (completion.status == IBV_WC_SUCCESS) {
        completion.byte_len = ibv_wc_read_byte_len(extended_);
      } else {
        completion.vendor_error = ibv_wc_read_vendor_err(extended_);
      }
      each(completion);
    } while (++count < limit && ibv_next_poll(extended_) == 0);
    ibv_end_poll(extended_);
    return count;
  }

  template <typename Each>
  std::size_t poll_classic(std::size_t limit, const Each& each) noexcept {
    constexpr int kBatch = 16;
    ibv_wc completions[kBatch];
    std::size_t count = 0;
    while (count < limit) {
      const int room = static_cast<int>(limit - count < kBatch ? limit - count : kBatch);
      const int got = ibv_poll_cq(cq_, room, completions);
      for (int i = 0; i < got; ++i) {
        const ibv_wc& wc = completions[i];
        Completion completion{.wr_id = wc.wr_id, .queue_pair = wc.qp_num, .status = wc.status};
        if (wc.status == IBV_WC_SUCCESS) {
          completion.byte_len = wc.byte_len;
          completion.in_receive = wc.opcode != IBV_WC_RECV_RDMA_WITH_IMM;
          completion.flags = flags_of(wc.wc_flags);
          if (completion.flags & IBV_WC_WITH_INV)
            completion.invalidated = wc.invalidated_rkey;
          else if (completion.flags & IBV_WC_WITH_IMM)
            completion.immediate = be32toh(wc.imm_data);
        } else {
          completion.vendor_error = wc.vendor_err;
        }
        each(completion);
      }
      if (got > 0) count += static_cast<std::size_t>(got);
      if (got < room) break;
    }
    return count;
  }

  ibv_cq* const cq_;
  ibv_cq_ex* const extended_;  ///< the same queue in the extended interface, or null
  const std::uint32_t entries_;
  /// Works around two rxe bugs: rdma-core 44 ends a batch in ibv_next_poll() and again in ibv_end_poll(),
  /// which skips completions; and Linux 6.1 returns the kernel's wc_flags, in which invalidation is a
  /// different bit.
  const bool in_software_;
  std::uint32_t used_ = 0;
  std::uint32_t left_ = 0;  ///< part of `used_` that is released once the queue was seen empty
};

}  // namespace sluice::rdma::verbs
