// SPDX-License-Identifier: Apache-2.0
//
// A reliable connection (InfiniBand Architecture Specification volume 1, 9.7). requester.cc sends requests,
// recovery.cc handles acknowledgements and read responses and repairs losses; request_order.cc finds the turn of requests,
// and responder.cc executes them and sends acknowledgements and read responses.
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
#include "pmd/softroce/early_packets.h"
#include "pmd/softroce/frame.h"
#include "pmd/softroce/header_template.h"
#include "pmd/softroce/psn_bitmap.h"
#include "pmd/softroce/psn_window.h"
#include "pmd/softroce/softroce.h"
#include "pmd/softroce/timer_wheel.h"
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
/// Packets that are kept although an earlier one is missing, counted from that one.
inline constexpr std::uint32_t kMaxKeptPackets = 1024;
/// Bounds of the interval after which the NAK of a gap is repeated: the measured round trip, doubled with each repetition.
inline constexpr std::uint64_t kMinNakIntervalNs = 100'000;
inline constexpr std::uint64_t kMaxNakIntervalNs = 1'000'000'000;
/// Round trip while none has been measured.
inline constexpr std::uint64_t kUnmeasuredRoundTripNs = 1'000'000;
/// Number of NAKs for one gap if the peer makes no progress. The last one is sent several seconds after the first one.
inline constexpr std::uint32_t kMaxNaksWithoutProgress = 16;
/// Largest distance, in packets, between a gap and a packet that a peer can have sent.
inline constexpr std::int32_t kMaxGapPackets = 1 << 16;
/// Timeouts in a row that loss alone explains. After more of them the next hop is looked for.
inline constexpr std::uint32_t kRetriesOfLoss = 2;
/// Every so many retries, one goes to the link address that the peer had before.
inline constexpr std::uint32_t kRetriesOfHop = 4;
/// A request at most so many packets behind the expected one counts as sent again by the peer.
inline constexpr std::int32_t kRepeatedPackets = 1 << 16;
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
  /// `from` is the link address of the last hop.
  void on_packet(const Frame& frame, const std::byte* from, const Packet& packet) noexcept;
  /// Sends from the link address `own` from now on.
  void send_from(const LinkAddress& own) noexcept;
  /// Sends up to kPacketsPerTransmit packets. True: there is more to send.
  bool transmit() noexcept;
  /// At deadline_ns() or later.
  void on_timer(std::uint64_t now_ns) noexcept;
  std::uint64_t deadline_ns() const noexcept { return deadline_ns_; }
  std::size_t depth() const noexcept { return send_depth_ + recv_queue_.capacity(); }

  bool active = false;  ///< in the device's list of queue pairs to transmit
  TimerWheel<SoftQueuePair>::Timer timer{*this};

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
    std::uint32_t packets_received = 0;  ///< RdmaRead: response packets, up to the first missing one
    std::uint16_t sge_count = 0;
    SendOpcode opcode = SendOpcode::Send;
    std::uint8_t flags = 0;
    bool done = false;  ///< local work: executed
    WcStatus status = WcStatus::Success;
    std::uint64_t read_until = 0;  ///< its memory; Transmitter::lets_go_of()
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
    bool again = false;  ///< has been answered before
  };

  enum class Incoming : std::uint8_t { None, Send, Write };
  /// Says what is known of requests behind the expected one.
  enum class Gap : std::uint8_t {
    None,             ///< none has arrived
    Known,            ///< some have, and the peer may be sending the expected one
    NakScheduled,     ///< some have, and a NAK was scheduled
    AwaitingReceive,  ///< the expected one has, without a Receive, and an RNR NAK was scheduled
  };
  enum class Answer : std::uint8_t { None, Ack, Nak };

  SendEntry& entry(std::uint32_t index) noexcept { return send_queue_[index & send_mask_]; }
  Sge* sges_of(std::uint32_t index) noexcept {
    return &send_sges_[std::size_t{index & send_mask_} * max_sge_];
  }
  std::uint32_t packets_of(std::uint32_t bytes) const noexcept {
    return bytes == 0 ? 1 : ((bytes - 1) >> path_mtu_bits_) + 1;
  }
  bool send_packet(Packet& packet, std::span<const std::span<const std::byte>> pieces,
                   std::uint64_t& read_until) noexcept;
  bool send_without_payload(Packet& packet) noexcept {
    std::uint64_t nothing_read = 0;
    return send_packet(packet, {}, nothing_read);
  }
  void fail(WcStatus status) noexcept;
  void locate_peer(const Packet& packet, const std::byte* from) noexcept;
  bool is_current(const Packet& packet) const noexcept;
  bool is_repeated(const Packet& packet) const noexcept;
  void follow(const std::byte* from) noexcept;
  void send_to(LinkAddress hop) noexcept;
  void try_next_hop() noexcept;

  // requester.cc
  void add_entry(const SendWr& wr) noexcept;
  void transmit_requests(std::uint32_t budget) noexcept;
  bool may_send_more() const noexcept;
  bool start(SendEntry& work) noexcept;
  std::uint32_t send_read_request(const SendEntry& work, std::uint32_t number) noexcept;
  bool send_data_packet(std::uint32_t index, std::uint32_t number, bool ask) noexcept;
  bool last_on_the_wire(std::uint32_t index) noexcept;
  std::size_t gather(std::uint32_t index, std::uint32_t offset, std::uint32_t bytes) noexcept;
  bool wait_for_rate() noexcept;

  // recovery.cc
  void on_response(const Packet& packet) noexcept;
  void on_acknowledge(const Packet& packet) noexcept;
  void on_sequence_error(std::uint32_t psn) noexcept;
  void on_read_response(const Packet& packet) noexcept;
  void place_response(std::uint32_t index, std::uint32_t number, const Packet& packet) noexcept;
  void pass_responses() noexcept;
  void answered_before(std::uint32_t psn) noexcept;
  void ask_again(const SendEntry& work, std::uint32_t from, std::uint32_t end) noexcept;
  void acknowledge_before(std::uint32_t psn) noexcept;
  std::uint32_t find(std::uint32_t psn) noexcept;
  void cut_window(std::uint32_t psn) noexcept;
  void repair(std::uint32_t psn) noexcept;
  void go_back() noexcept;
  void reposition() noexcept;
  void complete_sends() noexcept;
  void complete(SendEntry& work, WcStatus status) noexcept;
  void set_deadline() noexcept;
  void restart_timer() noexcept;
  void on_timeout(std::uint64_t now_ns) noexcept;
  void probe() noexcept;
  void on_rnr_nak(std::uint8_t code) noexcept;
  bool outstanding() const noexcept { return psns_.outstanding(); }

  // responder.cc
  void execute(const Packet& packet) noexcept;
  bool in_sequence(const OpcodeTraits& kind, Opcode opcode) const noexcept;
  bool length_fits(const Packet& packet) const noexcept;
  void on_send(const Packet& packet) noexcept;
  void on_write(const Packet& packet) noexcept;
  void on_read(const Packet& packet) noexcept;
  std::uint32_t reads_unanswered() noexcept;
  bool receive_ready() noexcept;
  void end_message(const Packet& packet, std::uint32_t bytes) noexcept;
  void accepted(const Packet& packet, std::uint32_t packets) noexcept;
  void refuse(NakCode code) noexcept;
  void on_request_in_error(const Packet& packet) noexcept;
  std::uint32_t transmit_responses(std::uint32_t budget) noexcept;
  bool is_readable(const ReadServed& read) const noexcept;
  bool send_read_response(const ReadServed& read) noexcept;
  bool send_answer() noexcept;
  bool send_acknowledge(Syndrome syndrome, std::uint8_t value, std::uint32_t psn) noexcept;
  void notify_congestion() noexcept;
  void schedule_transmit() noexcept;

  // request_order.cc
  void on_request(const Packet& packet) noexcept;
  void transition(Gap to) noexcept;
  void answer(Answer which) noexcept;
  void await_receive() noexcept;
  std::uint64_t nak_interval_ns() const noexcept;
  void schedule_nak() noexcept;
  void on_gap_timer() noexcept;
  void forget_gap() noexcept;
  void on_early(const Packet& packet) noexcept;
  void keep(const Packet& packet) noexcept;
  bool place_early(const Packet& packet, std::uint32_t ahead) noexcept;
  const Packet* next_kept() noexcept;
  void continue_behind_gap(bool passed) noexcept;
  bool pass_placed() noexcept;
  void on_duplicate(const Packet& packet) noexcept;
  void on_duplicate_read(const Packet& packet) noexcept;

  SoftDevice& device_;
  const QueuePairNumber number_;
  const std::uint32_t send_depth_;
  const std::uint32_t max_sge_;
  const std::uint32_t send_mask_;
  State state_ = State::Init;
  bool heard_ = false;

  // Connection.
  Route route_;
  HeaderTemplate headers_;      ///< of route_
  LinkAddress latest_link_{};   ///< of the peer's latest current packet
  LinkAddress earlier_link_{};  ///< route_'s before its last change
  std::uint32_t remote_qp_ = 0;
  std::uint32_t path_mtu_ = 1024;
  std::uint32_t path_mtu_bits_ = 10;  ///< its binary logarithm
  RcAttributes attributes_;

  // Requester. Not a FixedRing, since retransmission goes back within it. Indices are free-running:
  // head <= next <= started <= tail. Entries before `started` have PSNs. `next` is the entry to send; it is
  // less than `started` while retransmitting, and then has packets: what has none was executed.
  std::uint32_t head_ = 0;
  std::uint32_t next_ = 0;
  std::uint32_t started_ = 0;
  std::uint32_t tail_ = 0;
  std::uint32_t next_packet_ = 0;  ///< next packet of the entry at `next`
  PsnWindow psns_;
  std::uint32_t reads_pending_ = 0;  ///< read requests on the wire
  std::uint32_t since_ack_request_ = 0;
  std::uint32_t retries_ = 0;
  std::uint32_t rnr_rounds_ = 0;
  bool rnr_wait_ = false;
  std::uint64_t last_progress_ns_ = 0;
  std::uint64_t retry_at_ns_ = 0;    ///< when to probe, to retransmit, or to end the wait after an RNR NAK
  std::uint64_t pace_until_ns_ = 0;  ///< when the rate allows the next packet
  std::uint64_t deadline_ns_ = 0;    ///< the earliest of the two and nak_at_ns_; zero: none

  // Recovery. A gap is repaired once; the repair's loss is for the timer.
  std::uint32_t answered_ = 0;  ///< the peer has executed, and answered, everything before
  PsnBitmap responses_;         ///< read responses behind a missing one
  bool probed_ = false;         ///< a probe was sent, without progress since
  bool repaired_ = false;       ///< went back or sent one packet again, without progress since
  std::uint64_t repaired_ns_ = 0;
  bool after_nak_ = false;  ///< went back because of a NAK
  /// The peer keeps what comes behind a missing packet: it has acknowledged more than was sent since that one.
  bool peer_keeps_ = false;
  bool single_ = false;  ///< only one packet, single_psn_, was sent again
  std::uint32_t single_psn_ = 0;
  std::uint32_t cut_until_ = 0;  ///< losses before this PSN have narrowed the window already
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
  Gap gap_ = Gap::None;            ///< behind expected_psn_
  std::uint32_t early_psn_ = 0;    ///< of the latest packet behind the gap
  std::uint32_t highest_psn_ = 0;  ///< of the packets behind the gap; with Gap::None it says nothing
  std::uint32_t naks_without_progress_ = 0;
  std::uint64_t nak_at_ns_ = 0;      ///< time of the next NAK, or zero
  EarlyPackets::Queue early_;        ///< copies of packets behind the gap
  PsnBitmap kept_{kMaxKeptPackets};  ///< packets of the Write that have been placed already
  std::optional<NakCode> refused_;   ///< NAK code of the fatal error at expected_psn_
  Answer answer_ = Answer::None;     ///< to be sent; by gap_ which NAK
  std::uint64_t last_notification_ns_ = 0;
  FixedRing<ReadServed> reads_{kMaxReadsServed};  ///< in PSN order
  std::uint64_t responses_until_ = 0;  ///< memory of their responses is read; Transmitter::lets_go_of()
  FixedRing<RecvWr, RingStorage<RecvWr>> recv_queue_;
};

}  // namespace sluice::rdma::softroce
