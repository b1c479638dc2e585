// SPDX-License-Identifier: Apache-2.0
//
// A reliable connection (InfiniBand Architecture Specification volume 1, 9.7). requester.cc sends requests.
// recovery.cc handles acknowledgements and read responses and repairs losses. request_order.cc orders
// requests, and responder.cc executes them and sends acknowledgements and read responses.
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

#include "dataplane/base/fixed_containers.h"
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

/// Number of packets that one queue pair sends before the next one transmits.
inline constexpr std::uint32_t kPacketsPerTransmit = 32;
/// Number of response packets per RDMA Read request on the wire. A longer RDMA Read is sent as several
/// requests, so that the congestion window also limits the responses.
inline constexpr std::uint32_t kReadRequestPackets = 16;
/// Number of request packets per AckReq bit while more packets are to be sent.
inline constexpr std::uint32_t kAckRequestInterval = 16;
/// Number of RDMA Read requests of the peer whose responses are queued, including duplicates.
inline constexpr std::uint32_t kMaxReadsServed = 32;
/// Number of packets after a missing one that may be kept, counted from the missing one.
inline constexpr std::uint32_t kMaxKeptPackets = 1024;
/// Bounds of the interval after which the NAK of a gap is repeated. The interval is the measured round trip,
/// doubled with each repetition.
inline constexpr std::uint64_t kMinNakIntervalNs = 100'000;
inline constexpr std::uint64_t kMaxNakIntervalNs = 200'000'000;
/// Assumed round trip before one was measured.
inline constexpr std::uint64_t kUnmeasuredRoundTripNs = 1'000'000;
/// Number of NAKs for one gap if the peer makes no progress. At a loss of 10 % all of them are lost once in
/// 100,000 gaps. The last one is sent less than a second after the first one: Linux's rxe ignores repeated
/// NAKs until its own retransmission timer expires, and starts that timer again at each response.
inline constexpr std::uint32_t kMaxNaksWithoutProgress = 5;
/// Largest distance, in packets, between a gap and a packet that a peer can have sent.
inline constexpr std::int32_t kMaxGapPackets = 1 << 16;
/// Number of consecutive timeouts that loss alone explains. After more timeouts the next hop is resolved
/// again.
inline constexpr std::uint32_t kRetriesOfLoss = 2;
/// Interval, in retries, at which one retry uses the previous link address of the peer.
inline constexpr std::uint32_t kRetriesOfHop = 4;
/// Largest distance, in packets, behind the expected PSN at which a request counts as retransmitted by the
/// peer.
inline constexpr std::int32_t kRepeatedPackets = 1 << 16;
/// Size of the largest message (InfiniBand 9.7.7).
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
  // Attributes of the connection, valid once it exists.
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

  // Interface for the device.
  /// Handles a packet. `from` is the link address of the last hop.
  void on_packet(const Frame& frame, const std::byte* from, const Packet& packet) noexcept;
  /// Uses the link address `own` as the source from now on.
  void send_from(const LinkAddress& own) noexcept;
  /// Sends up to kPacketsPerTransmit packets. Returns true if there is more to send.
  bool transmit() noexcept;
  /// Handles expired timers. Called at deadline_ns() or later.
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
    std::uint32_t packets = 0;           ///< number of PSNs; zero for local work
    std::uint32_t packets_received = 0;  ///< RdmaRead: number of response packets before the first missing
                                         ///< one
    std::uint16_t sge_count = 0;
    SendOpcode opcode = SendOpcode::Send;
    std::uint8_t flags = 0;
    bool done = false;  ///< local work: it was executed
    WcStatus status = WcStatus::Success;
    std::uint64_t read_until = 0;  ///< end of reading of its memory, for Transmitter::lets_go_of()
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
    bool again = false;  ///< a duplicate request, which was answered before
  };

  enum class Incoming : std::uint8_t { None, Send, Write };
  /// State of the gap between the expected request and later requests.
  enum class Gap : std::uint8_t {
    None,             ///< no later request has arrived
    Known,            ///< later requests have arrived, and the peer may be sending the expected one
    NakScheduled,     ///< later requests have arrived, and a NAK was scheduled
    AwaitingReceive,  ///< the expected request has arrived without a Receive, and an RNR NAK was scheduled
  };
  enum class Answer : std::uint8_t { None, Ack, Nak };

  SendEntry& entry(std::uint32_t index) noexcept { return send_queue_[index & send_mask_]; }
  Sge* sges_of(std::uint32_t index) noexcept {
    return &send_sges_[std::size_t{index & send_mask_} * max_sge_];
  }
  std::uint32_t packets_of(std::uint32_t bytes) const noexcept {
    return bytes == 0 ? 1 : ((bytes - 1) >> path_mtu_bits_) + 1;
  }
  /// Returns whether head <= next <= started <= tail holds for the free-running indices of the send queue.
  bool indices_ordered() const noexcept {
    return next_ - head_ <= started_ - head_ && started_ - head_ <= tail_ - head_ &&
           tail_ - head_ <= send_depth_;
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
  HeaderTemplate headers_;      ///< network headers of route_
  LinkAddress latest_link_{};   ///< link address of the peer's latest current packet
  LinkAddress earlier_link_{};  ///< link address in route_ before its last change
  std::uint32_t remote_qp_ = 0;
  std::uint32_t path_mtu_ = 1024;
  std::uint32_t path_mtu_bits_ = 10;  ///< binary logarithm of path_mtu_
  RcAttributes attributes_;

  // Requester. The queue is not a FixedRing, because retransmission moves backwards within it. Indices are
  // free-running: head <= next <= started <= tail. Entries before `started` have PSNs. `next` is the entry to
  // send. During retransmission it is less than `started` and has packets, because entries without packets
  // were executed.
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
  std::uint64_t retry_at_ns_ = 0;    ///< time to probe, to retransmit, or to end the wait after an RNR NAK
  std::uint64_t pace_until_ns_ = 0;  ///< time from which the rate allows the next packet
  std::uint64_t deadline_ns_ = 0;    ///< the earliest of retry_at_ns_, pace_until_ns_ and nak_at_ns_; zero if
                                     ///< none is set

  // Recovery. A gap is repaired once; the timer handles the loss of the repair.
  std::uint32_t answered_ = 0;  ///< the peer has executed and answered all requests before this PSN
  PsnBitmap responses_;         ///< read responses that arrived after a missing one
  bool probed_ = false;         ///< a probe was sent, and there was no progress since
  bool repaired_ = false;       ///< packets were retransmitted, and there was no progress since
  std::uint64_t repaired_ns_ = 0;
  bool after_nak_ = false;  ///< the retransmission is due to a NAK
  /// The peer keeps packets after a missing one: it has acknowledged more than was sent since the missing
  /// one.
  bool peer_keeps_ = false;
  bool single_ = false;  ///< only one packet, single_psn_, was retransmitted
  std::uint32_t single_psn_ = 0;
  std::uint32_t cut_until_ = 0;  ///< losses before this PSN have reduced the window already
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
  Gap gap_ = Gap::None;            ///< gap at expected_psn_
  std::uint32_t early_psn_ = 0;    ///< PSN of the packet after the gap that arrived last
  std::uint32_t highest_psn_ = 0;  ///< highest PSN after the gap; meaningless with Gap::None
  std::uint32_t naks_without_progress_ = 0;
  std::uint64_t nak_at_ns_ = 0;      ///< time of the next NAK, or zero
  EarlyPackets::Queue early_;        ///< copies of packets after the gap
  PsnBitmap kept_{kMaxKeptPackets};  ///< packets of the current Write that were placed already
  std::optional<NakCode> refused_;   ///< NAK code of the fatal error at expected_psn_
  Answer answer_ = Answer::None;     ///< acknowledgement to be sent; gap_ selects the kind of NAK
  std::uint64_t last_notification_ns_ = 0;
  FixedRing<ReadServed> reads_{kMaxReadsServed};  ///< in PSN order
  std::uint64_t responses_until_ = 0;             ///< end of reading of their memory (lets_go_of())
  FixedRing<RecvWr, RingStorage<RecvWr>> recv_queue_;
};

}  // namespace sluice::rdma::softroce
