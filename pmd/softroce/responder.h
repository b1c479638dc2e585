// SPDX-License-Identifier: Apache-2.0
//
// Responder half of a queue pair (InfiniBand Architecture Specification volume 1, 9.7): it orders the
// requests of the peer (request_order.cc), executes them, and sends acknowledgements and read responses
// (responder.cc).
//
// Only the reactor that owns the device may call. The functions that may end the connection return false if
// the queue pair has to enter Error; the responder has then sent the NAK with the reason. It does not set its
// queue pair's timer: the queue pair reads nak_at_ns() after each call.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "dataplane/base/fixed_containers.h"
#include "pmd/softroce/early_packets.h"
#include "pmd/softroce/peer_path.h"
#include "pmd/softroce/psn_bitmap.h"
#include "pmd/softroce/request_gap.h"
#include "pmd/softroce/wire.h"

namespace sluice::rdma::softroce {

/// Number of RDMA Read requests of the peer whose responses are queued, including duplicates.
inline constexpr std::uint32_t kMaxReadsServed = 32;
/// Number of packets after a missing one that may be kept, counted from the missing one.
inline constexpr std::uint32_t kMaxKeptPackets = 1024;
/// Largest distance, in packets, behind the expected PSN at which a request counts as retransmitted by the
/// peer.
inline constexpr std::int32_t kRepeatedPackets = 1 << 16;
/// Size of the largest message (InfiniBand 9.7.7).
inline constexpr std::uint32_t kMaxMessageBytes = 1u << 31;
/// RNR NAK timer code: the sender retries after 0.64 ms.
inline constexpr std::uint8_t kRnrTimerCode = 12;

class Responder {
 public:
  /// Setup. `device`, `path` and `owner`, whose memory windows the peer may access, outlive the responder.
  Responder(SoftDevice& device, PeerPath& path, const QueuePair& owner, std::uint32_t recv_depth);
  ~Responder();
  Responder(const Responder&) = delete;
  Responder& operator=(const Responder&) = delete;

  /// Begins a new connection. The peer's first request has the PSN `receive_psn`, and the peer has at most
  /// `responder_resources` RDMA Reads outstanding.
  void open(std::uint32_t receive_psn, std::uint8_t responder_resources) noexcept;

  std::size_t recv_depth() const noexcept { return recv_queue_.capacity(); }
  /// Returns whether no read response, no answer and no kept packet is pending.
  bool idle() const noexcept { return reads_.empty() && early_.count == 0; }
  /// Returns whether read responses are to be sent.
  bool has_responses() const noexcept { return !reads_.empty(); }
  /// Returns whether an acknowledgement or a NAK may be sent now, which the rate does not limit.
  bool has_answer() const noexcept { return reads_.empty() && answer_ != Answer::None; }
  /// Returns the time at which on_gap_timer() has to be called, or zero.
  std::uint64_t nak_at_ns() const noexcept { return gap_.nak_at_ns(); }
  /// Returns the end of reading of the memory of all responses, for Transmitter::lets_go_of().
  std::uint64_t read_until() const noexcept { return read_until_; }
  /// Reports whether the request is the next one or a retransmission of the last one. An attacker with
  /// knowledge of only the addresses and queue pair numbers has to guess the PSN.
  bool expects(const Packet& packet) const noexcept;
  /// Returns whether the request is one that the peer may retransmit.
  bool is_repeated(const Packet& packet) const noexcept;

  /// Adds a Receive. Returns false if the queue is full.
  bool add_receive(const RecvWr& wr) noexcept { return recv_queue_.push_back(wr); }
  /// Handles a request, which is probably the next one. Does the same as on_request().
  [[nodiscard]] bool on_expected(const Packet& packet) noexcept {
    const bool in_order = packet.bth.psn == expected_psn_ && gap_.state() == RequestGap::State::None;
    return in_order ? execute(packet) : on_request(packet);
  }
  /// Handles a request.
  [[nodiscard]] bool on_request(const Packet& packet) noexcept;
  /// Handles a request that arrives in Error, by repeating the NAK with the reason.
  void on_request_in_error(const Packet& packet) noexcept;
  /// Handles the expiry of nak_at_ns().
  void on_gap_timer() noexcept;
  /// Sends read responses and then an acknowledgement or NAK, in PSN order. Sends up to `budget` packets, by
  /// which it reduces `budget`.
  [[nodiscard]] bool transmit(std::uint32_t& budget) noexcept;
  /// Drops all pending responses and kept packets, because the queue pair is in Error.
  void end_responses() noexcept;
  /// Completes all Receives as flushed.
  void flush_receives() noexcept;

 private:
  friend struct QueuePairProbe;  // tests/driver/softroce_invariant_test.cc breaks the PSN invariants

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
  enum class Answer : std::uint8_t { None, Ack, Nak };
  /// Result of sending one read response.
  enum class Response : std::uint8_t { Sent, Later, Refused };

  // responder.cc
  bool execute(const Packet& packet) noexcept;
  bool in_sequence(const OpcodeTraits& kind, Opcode opcode) const noexcept;
  bool length_fits(const Packet& packet) const noexcept;
  bool on_send(const Packet& packet) noexcept;
  bool on_write(const Packet& packet) noexcept;
  bool on_read(const Packet& packet) noexcept;
  std::uint32_t reads_unanswered() noexcept;
  bool receive_ready() noexcept;
  void end_message(const Packet& packet, std::uint32_t bytes) noexcept;
  bool accepted(const Packet& packet, std::uint32_t packets) noexcept;
  bool refuse(NakCode code) noexcept;
  bool is_readable(const ReadServed& read) const noexcept;
  Response send_read_response(const ReadServed& read) noexcept;
  bool send_answer() noexcept;
  bool send_acknowledge(Syndrome syndrome, std::uint8_t value, std::uint32_t psn) noexcept;

  // request_order.cc
  void answer(Answer which) noexcept {
    if (answer_ != Answer::Nak) answer_ = which;
  }
  void schedule_nak() noexcept;
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
  PeerPath& path_;
  const QueuePair& owner_;
  const QueuePairNumber number_;
  std::uint32_t expected_psn_ = 0;
  std::uint32_t msn_ = 0;
  std::uint8_t responder_resources_ = 0;
  Incoming incoming_ = Incoming::None;
  std::uint32_t incoming_bytes_ = 0;  ///< Send: bytes received; Write: bytes still to be received
  std::uint32_t write_bytes_ = 0;
  std::uint64_t write_address_ = 0;
  Rkey write_rkey_{};
  RequestGap gap_;                   ///< gap at expected_psn_
  EarlyPackets::Queue early_;        ///< copies of packets after the gap
  PsnBitmap kept_{kMaxKeptPackets};  ///< packets of the current Write that were placed already
  std::optional<NakCode> refused_;   ///< NAK code of the fatal error at expected_psn_
  Answer answer_ = Answer::None;     ///< acknowledgement to be sent; gap_ selects the kind of NAK
  FixedRing<ReadServed> reads_{kMaxReadsServed};  ///< in PSN order
  std::uint64_t read_until_ = 0;
  FixedRing<RecvWr, RingStorage<RecvWr>> recv_queue_;
};

}  // namespace sluice::rdma::softroce
