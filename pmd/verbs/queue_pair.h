// SPDX-License-Identifier: Apache-2.0
//
// A queue pair of the verbs driver (pmd/queue_pair.h). Only the reactor that owns its device may call; the
// device outlives it. It posts to an ibv_qp, which the device's set-up thread creates, connects and destroys.
// If the provider fails or the NIC is removed, the ibv_qp is destroyed early and the driver flushes
// everything outstanding. Memory of posted work requests belongs to the queue pair until their completion.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <cstdint>
#include <vector>

#include "dataplane/base/fixed_containers.h"
#include "dataplane/base/invariant.h"
#include "dataplane/base/setup_error.h"
#include "pmd/queue_pair.h"
#include "pmd/verbs/completion_queue.h"
#include "pmd/verbs/states.h"

namespace sluice::rdma::verbs {

class VerbsDevice;
struct Hardware;

/// Largest number of scatter/gather elements per work request.
inline constexpr std::uint32_t kMaxSge = 16;
/// Largest number of work requests per ibv_post_send() or ibv_post_recv().
inline constexpr std::uint32_t kClassicBatch = 16;

/// Ring of posted work requests that have not completed. Indices are free-running, modulo 2^32.
template <typename Entry>
class PostedRing {
 public:
  explicit PostedRing(std::uint32_t depth) : depth_(depth) {
    std::uint32_t size = 1;
    while (size < depth) size *= 2;
    entries_.resize(size);
    mask_ = size - 1;
  }
  std::uint32_t depth() const noexcept { return depth_; }
  std::uint32_t room() const noexcept {
    SLUICE_INVARIANT_DEBUG(head_ - tail_ <= depth_, ring_index);
    return depth_ - (head_ - tail_);
  }
  bool empty() const noexcept { return head_ == tail_; }
  std::uint32_t head() const noexcept { return head_; }
  std::uint32_t tail() const noexcept { return tail_; }
  /// Reports whether `index` is outstanding.
  bool holds(std::uint32_t index) const noexcept { return index - tail_ < head_ - tail_; }
  Entry& at(std::uint32_t index) noexcept { return entries_[index & mask_]; }
  std::uint32_t push(const Entry& entry) noexcept {
    SLUICE_INVARIANT_DEBUG(head_ - tail_ < depth_, ring_index);
    at(head_) = entry;
    return head_++;
  }
  Entry pop() noexcept {
    SLUICE_INVARIANT_DEBUG(!empty(), ring_index);
    return at(tail_++);
  }

 private:
  const std::uint32_t depth_;
  std::uint32_t mask_ = 0;
  std::uint32_t head_ = 0;
  std::uint32_t tail_ = 0;
  std::vector<Entry> entries_;
};

class VerbsQueuePair final : public QueuePair {
 public:
  /// Setup. `hardware` is in Init and belongs to the queue pair until release() of the device.
  VerbsQueuePair(VerbsDevice& device, std::uint16_t slot, std::uint16_t generation, Hardware& hardware);
  ~VerbsQueuePair() override;

  QueuePairNumber number() const noexcept override { return number_; }
  State state() const noexcept override {
    if (has_ended()) return State::Error;
    return stage_.is(QueuePairStage::Connected) ? State::ReadyToSend : State::Init;
  }
  std::size_t post_send(std::span<const SendWr> wrs) noexcept override;
  std::size_t post_recv(std::span<const RecvWr> wrs) noexcept override;
  std::size_t send_room() const noexcept override { return sends_.room(); }
  std::optional<Rkey> bind_window(MemoryWindow window, std::span<std::byte> bytes, Lkey lkey,
                                  AccessFlags access) noexcept override;
  bool register_region(MemoryWindow window, std::span<std::byte> bytes, Lkey lkey, AccessFlags access,
                       std::uint64_t wr_id) noexcept override;
  bool deregister_region(MemoryWindow window, std::uint64_t wr_id, std::uint8_t flags) noexcept override;
  void to_error() noexcept override;
  bool connect(const RcAttributes& attributes) noexcept override;
  bool heard_from_peer() const noexcept override { return heard_ && stage_.is(QueuePairStage::Connected); }
  bool is_broken() const noexcept override { return broken_; }

  // Interface for the device.
  std::uint16_t slot() const noexcept { return slot_; }
  std::uint16_t generation() const noexcept { return generation_; }
  void on_completion(const Cookie& cookie, const Completion& completion) noexcept;
  /// Copies a message of a shared Receive to the first Receive posted on this queue pair.
  void on_shared_receive(const Completion& completion, std::span<const std::byte> message) noexcept;
  /// Posts the staged work requests to the provider. If the provider refuses, calls lose().
  void ring_doorbell() noexcept;
  /// Ends the ibv_qp after the provider has failed or the NIC was removed. Outstanding work requests complete
  /// as flushed once the ibv_qp has ended.
  void lose() noexcept;
  /// Moves to Error because the device has reported an error of the ibv_qp or could not connect it.
  void on_error_event() noexcept;
  // Results of the set-up thread: the ibv_qp was connected or could not be, was moved to Error, or was
  // destroyed.
  void on_connected(bool done) noexcept;
  /// Reports whether the ibv_qp is in Error and the device has not completed all work requests.
  bool awaits_flush() const noexcept { return stage_.is(QueuePairStage::Flushing) && holds_device(); }
  void on_failed() noexcept;
  void on_destroyed() noexcept;

 private:
  struct SendEntry {
    std::uint64_t wr_id = 0;
    std::uint32_t rkey = 0;  ///< LocalInvalidate: rkey of the window
    WcOpcode opcode = WcOpcode::Send;
    bool signaled = false;  ///< a completion was requested by the caller
  };

  /// A work request that waits until the device has room for its RDMA Read, or for one before it.
  struct HeldWr {
    SendWr wr;
    std::uint32_t index = 0;  ///< in sends_
    unsigned flags = 0;
    std::array<Sge, kMaxSge> sges;
  };

  /// Records that the device ends the connection, unless it has ended before.
  void note_broken() noexcept { broken_ = broken_ || !has_ended(); }
  bool has_ended() const noexcept { return stage_.state() >= QueuePairStage::Ended; }
  /// Stops posting work requests to the provider.
  void stop_posting() noexcept;
  /// Reports whether work requests are outstanding that the device must complete.
  bool holds_device() const noexcept {
    return sends_.tail() != device_sends_ || (!shares_receives_ && receives_.tail() != device_receives_);
  }
  bool can_inline(const SendWr& wr) const noexcept;
  void stage(const SendWr& wr) noexcept;
  void stage_for_device(const SendWr& wr, std::uint32_t index, unsigned flags) noexcept;
  bool must_hold(const SendWr& wr) const noexcept {
    return !held_.empty() || (wr.opcode == SendOpcode::RdmaRead && reads_ == max_reads_);
  }
  void hold(const SendWr& wr, std::uint32_t index, unsigned flags) noexcept;
  void release_held() noexcept;
  unsigned flags_for(std::uint8_t flags, bool& signaled) noexcept;
  std::uint64_t send_cookie(std::uint32_t index) const noexcept {
    return Cookie{slot_, generation_, false, index}.packed();
  }
  void begin_batch() noexcept;
  void stage_extended(const SendWr& wr, std::uint64_t cookie, unsigned flags, bool inlined) noexcept;
  void stage_classic(const SendWr& wr, std::uint64_t cookie, unsigned flags, bool inlined) noexcept;
  ibv_send_wr& next_classic(std::uint64_t cookie, unsigned flags) noexcept;
  void post_classic() noexcept;
  std::uint32_t gather(const SendWr& wr, std::span<ibv_sge> into) const noexcept;
  void on_send(std::uint32_t index, const Completion& completion) noexcept;
  void on_receive(std::uint64_t wr_id, const Completion& completion) noexcept;
  ibv_wc_status copy(std::span<const std::byte> message, const Sge& to) const noexcept;
  void note_error(const Completion& completion, bool receive) noexcept;
  void after_completion(ibv_wc_status status) noexcept;
  void flush_sends_after_device() noexcept;
  void flush_receives_after_device() noexcept;

  VerbsDevice& device_;
  const ProtectionDomain domain_;
  const bool shares_receives_;  ///< messages are copied from the device's SharedReceives
  Hardware& hardware_;
  ibv_qp* const qp_;           ///< unused in Error
  ibv_qp_ex* const extended_;  ///< the same queue pair in the extended interface, or null
  const QueuePairNumber number_;
  const std::uint16_t slot_;
  const std::uint16_t generation_;
  QueuePairMachine stage_;
  // These flags are not stages. A message may have arrived before Connected. The reason of the end persists
  // in both stages after it. Work requests are staged and posted per message, in Connected.
  bool heard_ = false;   ///< a message from the peer has arrived
  bool broken_ = false;  ///< the device has ended the connection
  bool staged_ = false;  ///< between ibv_wr_start() and ibv_wr_complete(), or in `chain_`
  const std::uint32_t max_inline_;
  std::uint32_t since_signaled_ = 0;
  PostedRing<SendEntry> sends_;
  PostedRing<RecvWr> receives_;
  // Index of the first work request that was not posted to the provider.
  std::uint32_t device_sends_ = 0;
  std::uint32_t device_receives_ = 0;

  // Only on devices with a limit of posted RDMA Reads, of which zero means none.
  const std::uint32_t max_reads_;
  std::uint32_t reads_ = 0;  ///< posted to the provider and not completed
  FixedRing<HeldWr> held_;

  // Classic interface: work requests staged for ibv_post_send().
  std::uint32_t chain_length_ = 0;
  std::array<ibv_send_wr, kClassicBatch> chain_;
  std::array<std::array<ibv_sge, kMaxSge>, kClassicBatch> chain_sges_;
};

}  // namespace sluice::rdma::verbs
