// SPDX-License-Identifier: Apache-2.0
//
// A reliable connection (InfiniBand Architecture Specification volume 1, 9.7). requester.cc sends requests
// and handles acknowledgements and read responses; responder.cc handles requests and sends acknowledgements
// and read responses.
//
// Only the reactor that owns its device may call; the device outlives it. Memory of posted work requests
// belongs to the queue pair until their completion. PSNs are 24 bits, times ns, sizes bytes; errors are
// WcStatus.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "dataplane/base/fixed_ring.h"
#include "dataplane/base/ring_storage.h"
#include "pmd/softroce/congestion.h"
#include "pmd/softroce/frame.h"
#include "pmd/softroce/psn_window.h"
#include "pmd/softroce/softroce.h"
#include "pmd/softroce/wire.h"

namespace sluice::rdma::softroce {

class SoftDevice;

/// Packets that one queue pair sends before the next one transmits.
inline constexpr std::uint32_t kPacketsPerTransmit = 32;
/// An RDMA Read is sent as several requests for at most this many response packets each, so that the
/// congestion window also limits the responses.
inline constexpr std::uint32_t kReadRequestPackets = 16;
/// Request packets per AckReq bit, while there are more to send.
inline constexpr std::uint32_t kAckRequestInterval = 16;
/// RDMA Read requests of the peer whose responses are queued, duplicates included.
inline constexpr std::uint32_t kMaxReadsServed = 32;
/// Largest message (InfiniBand 9.7.7).
inline constexpr std::uint32_t kMaxMessageBytes = 1u << 31;
/// Minimum time between congestion notifications to one peer.
inline constexpr std::uint64_t kNotificationIntervalNs = 50'000;
/// RNR NAK timer code: the sender retries after 0.64 ms.
inline constexpr std::uint8_t kRnrTimerCode = 12;

class SoftQueuePair final : public QueuePair {
 public:
  SoftQueuePair(SoftDevice& device, QueuePairNumber number, const QueuePairLimits& limits);
  ~SoftQueuePair() override;

  QueuePairNumber number() const noexcept override { return number_; }
  // Of the connection, once there is one.
  std::uint32_t remote_qp() const noexcept { return remote_qp_; }
  const PeerAddress& remote() const noexcept { return attributes_.remote; }
  State state() const noexcept override { return state_; }
  std::size_t post_send(std::span<const SendWr> wrs) noexcept override;
  std::size_t post_recv(std::span<const RecvWr> wrs) noexcept override;
  std::size_t send_room() const noexcept override { return send_depth_ - (tail_ - head_); }
  std::optional<Rkey> bind_window(MemoryWindow window, std::span<std::byte> bytes, Lkey lkey,
                                  AccessFlags access) noexcept override;
  void to_error() noexcept override;
  bool connect(const RcAttributes& attributes) noexcept override;
  bool heard_from_peer() const noexcept override { return heard_; }

  // For the device.
  void on_packet(const Frame& frame, const LinkAddress& from, const Packet& packet) noexcept;
  /// Sends up to kPacketsPerTransmit packets. True: there is more to send.
  bool transmit() noexcept;
  /// At deadline_ns() or later.
  void on_timer(std::uint64_t now_ns) noexcept;
  std::uint64_t deadline_ns() const noexcept { return deadline_ns_; }
  std::size_t depth() const noexcept { return send_depth_ + recv_queue_.capacity(); }

  bool active = false;  ///< in the device's list of queue pairs to transmit
  bool timed = false;   ///< in the device's list of queue pairs with a deadline

 private:
  friend struct QueuePairProbe;  // tests/driver/softroce_invariant_test.cc breaks the PSN invariants

  struct SendEntry {
    std::uint64_t wr_id = 0;
    std::uint64_t remote_address = 0;
    std::uint32_t bytes = 0;
    Rkey rkey{};
    std::uint32_t immediate = 0;
    std::uint32_t first_psn = 0;
    std::uint32_t packets = 0;           ///< number of its PSNs; zero for local work
    std::uint32_t packets_received = 0;  ///< RdmaRead: response packets
    std::uint16_t sge_count = 0;
    SendOpcode opcode = SendOpcode::Send;
    std::uint8_t flags = 0;
    bool done = false;  ///< local work: executed
    WcStatus status = WcStatus::Success;
  };

  /// An RDMA Read request of the peer whose responses are being sent.
  struct ReadServed {
    std::uint32_t first_psn = 0;
    std::uint32_t packets = 0;
    std::uint32_t next = 0;  ///< next response packet
    std::uint32_t msn = 0;
    Rkey rkey{};
    std::uint32_t bytes = 0;
    std::uint64_t address = 0;
  };

  enum class Incoming : std::uint8_t { None, Send, Write };

  SendEntry& entry(std::uint32_t index) noexcept { return send_queue_[index & send_mask_]; }
  Sge* sges_of(std::uint32_t index) noexcept {
    return &send_sges_[std::size_t{index & send_mask_} * max_sge_];
  }
  std::uint32_t packets_of(std::uint32_t bytes) const noexcept {
    return bytes == 0 ? 1 : (bytes - 1) / path_mtu_ + 1;
  }
  bool send_packet(Packet& packet, std::span<const std::span<const std::byte>> pieces) noexcept;
  void fail(WcStatus status) noexcept;
  bool is_current(const Packet& packet) const noexcept;
  void follow(const LinkAddress& from) noexcept;

  // requester.cc
  void add_entry(const SendWr& wr) noexcept;
  void transmit_requests(std::uint32_t budget) noexcept;
  bool may_send_more() const noexcept;
  bool start(SendEntry& work) noexcept;
  std::uint32_t send_read_request(const SendEntry& work) noexcept;
  std::uint32_t send_data_packet(const SendEntry& work) noexcept;
  std::size_t gather(std::uint32_t index, std::uint32_t offset, std::uint32_t bytes) noexcept;
  void on_response(const Packet& packet) noexcept;
  void on_acknowledge(const Packet& packet) noexcept;
  void on_read_response(const Packet& packet) noexcept;
  void acknowledge_through(std::uint32_t psn) noexcept;
  void acknowledge_before(std::uint32_t psn) noexcept;
  void go_back() noexcept;
  void reposition() noexcept;
  void complete_sends() noexcept;
  void complete(SendEntry& work, WcStatus status) noexcept;
  void set_deadline(std::uint64_t at_ns) noexcept;
  void restart_timer() noexcept;
  void on_rnr_nak(std::uint8_t code) noexcept;
  bool outstanding() const noexcept { return psns_.outstanding(); }

  // responder.cc
  void on_request(const Packet& packet) noexcept;
  void on_duplicate(const Packet& packet) noexcept;
  bool in_sequence(const OpcodeTraits& kind, Opcode opcode) const noexcept;
  void on_send(const Packet& packet) noexcept;
  void on_write(const Packet& packet) noexcept;
  void on_read(const Packet& packet) noexcept;
  void on_duplicate_read(const Packet& packet) noexcept;
  bool receive_ready() noexcept;
  void end_message(const Packet& packet, std::uint32_t bytes) noexcept;
  void accepted(const Packet& packet, std::uint32_t packets) noexcept;
  void refuse(NakCode code) noexcept;
  void on_request_in_error(const Packet& packet) noexcept;
  void schedule_nak(Syndrome syndrome, std::uint8_t value) noexcept;
  std::uint32_t transmit_responses(std::uint32_t budget) noexcept;
  bool send_read_response(const ReadServed& read) noexcept;
  bool send_acknowledge(Syndrome syndrome, std::uint8_t value, std::uint32_t psn) noexcept;
  void notify_congestion() noexcept;
  void schedule_transmit() noexcept;

  SoftDevice& device_;
  const QueuePairNumber number_;
  const std::uint32_t send_depth_;
  const std::uint32_t max_sge_;
  const std::uint32_t send_mask_;
  State state_ = State::Init;
  bool heard_ = false;

  // Connection.
  Route route_;
  LinkAddress latest_link_{};  ///< of the peer's latest current packet
  std::uint32_t remote_qp_ = 0;
  std::uint32_t path_mtu_ = 1024;
  RcAttributes attributes_;

  // Requester. Not a FixedRing, since retransmission goes back within it. Indices are free-running:
  // head <= next <= started <= tail. Entries before `started` have PSNs. `next` is the entry to send; it is
  // less than `started` while retransmitting.
  std::uint32_t head_ = 0;
  std::uint32_t next_ = 0;
  std::uint32_t started_ = 0;
  std::uint32_t tail_ = 0;
  std::uint32_t next_packet_ = 0;  ///< next packet of the entry at `next`
  PsnWindow psns_;
  std::uint32_t reads_pending_ = 0;  ///< read requests on the wire
  std::uint32_t since_ack_request_ = 0;
  bool went_back_ = false;  ///< has gone back, without progress since
  std::uint32_t retries_ = 0;
  std::uint32_t rnr_rounds_ = 0;
  bool rnr_wait_ = false;
  std::uint64_t last_progress_ns_ = 0;
  std::uint64_t deadline_ns_ = 0;  ///< zero: none
  std::uint64_t pace_until_ns_ = 0;
  std::uint32_t timed_psn_ = 0;  ///< packet whose round trip is being measured
  std::uint64_t timed_since_ns_ = 0;
  CongestionWindow window_;
  CongestionRate rate_;
  RoundTrip round_trip_;
  std::uint32_t gather_entry_ = 0;  ///< position of gather(), so that it need not search from the first Sge
  std::uint32_t gather_sge_ = 0;
  std::uint32_t gather_sge_start_ = 0;
  RingStorage<SendEntry> send_queue_;
  RingStorage<Sge> send_sges_;
  std::array<std::span<const std::byte>, 32> pieces_;

  // Responder.
  std::uint32_t expected_psn_ = 0;
  std::uint32_t msn_ = 0;
  Incoming incoming_ = Incoming::None;
  std::uint32_t incoming_bytes_ = 0;  ///< Send: bytes received; Write: bytes still to be received
  std::uint32_t write_bytes_ = 0;
  std::uint64_t write_address_ = 0;
  Rkey write_rkey_{};
  bool gap_nak_sent_ = false;       ///< a NAK or RNR NAK for expected_psn_ was scheduled: send no second one
  std::optional<NakCode> refused_;  ///< NAK code of the fatal error at expected_psn_
  bool ack_pending_ = false;
  bool nak_pending_ = false;
  Syndrome nak_syndrome_ = Syndrome::Nak;
  std::uint8_t nak_value_ = 0;
  std::uint64_t last_notification_ns_ = 0;
  FixedRing<ReadServed> reads_{kMaxReadsServed};  ///< in PSN order
  FixedRing<RecvWr, RingStorage<RecvWr>> recv_queue_;
};

}  // namespace sluice::rdma::softroce
