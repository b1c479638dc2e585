// SPDX-License-Identifier: Apache-2.0
//
// A queue pair of the loopback driver. Only the reactor that owns its device may call; the device outlives
// it. post_send() copies Sends to the peer's wire; poll() moves RDMA data, receives and completes. Memory of
// posted work requests belongs to the queue pair until their completion. Sizes in bytes; errors are WcStatus.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "dataplane/base/fixed_containers.h"
#include "dataplane/base/invariant.h"
#include "pmd/loopback/loopback.h"
#include "pmd/loopback/windows.h"
#include "pmd/loopback/wire.h"

namespace sluice::rdma::loopback {

class LoopbackDevice;

/// Output of poll(), which stops when it is full.
class CompletionSink {
 public:
  explicit CompletionSink(std::span<WorkCompletion> room) noexcept : room_(room) {}
  bool full() const noexcept { return count_ == room_.size(); }
  std::size_t count() const noexcept { return count_; }
  /// Adds a completion constructed in place: assigning a temporary copies it with loads wider than its
  /// stores, which prevents store forwarding.
  WorkCompletion& add() noexcept {
    SLUICE_INVARIANT_DEBUG(!full(), ring_index);
    return *std::construct_at(&room_[count_++]);
  }

 private:
  std::span<WorkCompletion> room_;
  std::size_t count_ = 0;
};

class LoopbackQueuePair final : public QueuePair {
 public:
  LoopbackQueuePair(LoopbackDevice& device, QueuePairNumber number, const QueuePairLimits& limits);
  ~LoopbackQueuePair() override;

  QueuePairNumber number() const noexcept override { return number_; }
  State state() const noexcept override { return state_; }
  std::size_t post_send(std::span<const SendWr> wrs) noexcept override;
  std::size_t post_recv(std::span<const RecvWr> wrs) noexcept override;
  std::size_t send_room() const noexcept override {
    SLUICE_INVARIANT_DEBUG(tail_ - head_ <= send_depth_, ring_index);
    return send_depth_ - (tail_ - head_);
  }
  std::optional<Rkey> bind_window(MemoryWindow window, std::span<std::byte> bytes, Lkey lkey,
                                  AccessFlags access) noexcept override;
  void to_error() noexcept override;
  bool heard_from_peer() const noexcept override { return receiving_.position() != 0; }

  // Interface for the device.
  void attach(Link& link, std::uint32_t side) noexcept;
  void poll(CompletionSink& sink) noexcept;
  Link* link() noexcept { return link_; }
  std::uint32_t side() const noexcept { return side_; }

 private:
  enum class Stage : std::uint8_t { Posted, OnWire, Done };
  struct SendEntry {
    std::uint64_t wr_id = 0;
    std::uint64_t end_position = 0;  ///< wire position after the record of a Send
    std::uint64_t remote_address = 0;
    std::uint32_t bytes = 0;
    std::uint32_t copied = 0;
    Rkey rkey{};
    std::uint32_t delay_polls = 0;
    std::uint16_t sge_count = 0;
    SendOpcode opcode = SendOpcode::Send;
    std::uint8_t flags = 0;
    Stage stage = Stage::Posted;
    WcStatus status = WcStatus::Success;
  };

  SendEntry& entry(std::uint32_t index) noexcept { return send_queue_[index & send_mask_]; }
  std::span<Sge> sges_of(std::uint32_t index) noexcept {
    return {&send_sges_[std::size_t{index & send_mask_} * max_sge_], entry(index).sge_count};
  }

  bool add_entry(const SendWr& wr) noexcept;
  void execute_posted(std::uint32_t& copy_budget) noexcept;
  bool execute(std::uint32_t index, std::uint32_t& copy_budget) noexcept;
  bool put_on_wire(std::uint32_t index) noexcept;
  bool copy_remote(std::uint32_t index, std::uint32_t& copy_budget) noexcept;
  bool transferred(SendEntry& work) noexcept;
  bool invalidate_local(SendEntry& entry) noexcept;
  void complete_sends(CompletionSink& sink) noexcept;
  void complete_entry(SendEntry& entry, WcStatus status, CompletionSink& sink) noexcept;
  void receive(CompletionSink& sink) noexcept;
  bool receive_record(const WireRecord& record, CompletionSink& sink) noexcept;
  void not_ready() noexcept;
  void refuse(WcStatus senders_status) noexcept;
  void corrupt() noexcept;
  void flush(CompletionSink& sink) noexcept;
  Side& own() noexcept {
    SLUICE_INVARIANT_DEBUG(link_ != nullptr && side_ < 2, queue_pair_state);
    return link_->sides[side_];
  }
  Side& peer() noexcept { return link_->sides[1 - side_]; }

  LoopbackDevice& device_;
  const QueuePairNumber number_;
  const std::uint32_t send_depth_;
  const std::uint32_t recv_depth_;
  const std::uint32_t max_sge_;
  const std::uint8_t rnr_retry_;
  std::uint32_t send_mask_;
  std::uint32_t recv_mask_;
  State state_ = State::Init;
  Link* link_ = nullptr;
  std::uint32_t side_ = 0;
  BoundWindows windows_;

  // Send queue: free-running indices, head <= execute <= tail. Work requests start and complete in order.
  std::uint32_t head_ = 0;
  std::uint32_t execute_ = 0;
  std::uint32_t tail_ = 0;
  std::uint32_t on_wire_ = 0;    ///< Sends not acknowledged yet
  bool waits_for_peer_ = false;  ///< the Send at head_ was not acknowledged at the last check
  WireSender sending_;
  RingStorage<SendEntry> send_queue_;
  RingStorage<Sge> send_sges_;

  // Receive queue.
  std::uint32_t recv_head_ = 0;
  std::uint32_t recv_tail_ = 0;
  WireReceiver receiving_;
  std::uint32_t rnr_polls_ = 0;
  std::uint32_t rnr_rounds_ = 0;
  RingStorage<RecvWr> recv_queue_;
};

}  // namespace sluice::rdma::loopback
