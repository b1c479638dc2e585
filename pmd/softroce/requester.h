// SPDX-License-Identifier: Apache-2.0
//
// Requester half of a queue pair (InfiniBand Architecture Specification volume 1, 9.7): it sends the requests
// of the send queue (requester.cc), handles their acknowledgements and read responses, and repairs losses
// (recovery.cc).
//
// Only the reactor that owns the device may call. The functions that may end the connection return false if
// the queue pair has to enter Error; the requester has then completed the work request that is the cause. It
// does not set its queue pair's timer: the queue pair reads retry_at_ns() after each call.
#pragma once

#include <cstdint>
#include <span>

#include "pmd/softroce/congestion.h"
#include "pmd/softroce/peer_path.h"
#include "pmd/softroce/psn_bitmap.h"
#include "pmd/softroce/psn_window.h"
#include "pmd/softroce/send_queue.h"
#include "pmd/softroce/wire.h"

namespace sluice::rdma::softroce {

/// Number of response packets per RDMA Read request on the wire. A longer RDMA Read is sent as several
/// requests, so that the congestion window also limits the responses.
inline constexpr std::uint32_t kReadRequestPackets = 16;
/// Number of request packets per AckReq bit while more packets are to be sent.
inline constexpr std::uint32_t kAckRequestInterval = 16;
/// Number of consecutive timeouts that loss alone explains. After more timeouts the next hop is resolved
/// again.
inline constexpr std::uint32_t kRetriesOfLoss = 2;

class Requester {
 public:
  /// Setup. `device`, `path` and `owner`, whose memory windows are invalidated, outlive the requester.
  Requester(SoftDevice& device, PeerPath& path, const QueuePair& owner, const QueuePairLimits& limits);

  /// Begins a new connection.
  void open(const RcAttributes& attributes) noexcept;

  const SendQueue& queue() const noexcept { return queue_; }
  /// Returns whether indices and PSNs are in order.
  bool ordered() const noexcept { return queue_.ordered() && psns_.ordered(); }
  std::uint32_t unacknowledged() const noexcept { return psns_.unacknowledged(); }
  /// Returns the time at which on_retry_timer() has to be called, or zero.
  std::uint64_t retry_at_ns() const noexcept { return retry_at_ns_; }

  /// Sends the first work requests of `wrs` whose messages fit one packet each, unless an earlier one is
  /// still to be sent. Returns their number. The caller adds the rest to the queue, which has room for all.
  [[nodiscard]] std::uint32_t send_at_once(std::span<const SendWr> wrs) noexcept;
  /// Adds a work request to the queue, which has room.
  void add(const SendWr& wr) noexcept;
  /// Completes a work request of a queue pair in Error.
  void add_flushed(const SendWr& wr) noexcept;
  /// Returns whether a request may be sent now, apart from the rate.
  bool may_send_more() const noexcept;
  /// Sends up to `budget` packets. The responses that were sent before read their memory until
  /// `responses_until`, which delays the completion of local invalidations.
  [[nodiscard]] bool transmit(std::uint32_t budget, std::uint64_t responses_until) noexcept;
  /// Handles an acknowledgement or a read response.
  [[nodiscard]] bool on_response(const Packet& packet) noexcept;
  /// Handles the expiry of retry_at_ns().
  [[nodiscard]] bool on_retry_timer(std::uint64_t now_ns) noexcept;
  /// Handles the end of pacing.
  void on_rate_timer() noexcept;
  /// Flushes all work requests and stops the timer, because the queue pair is in Error.
  void flush() noexcept;

 private:
  friend struct QueuePairProbe;  // tests/driver/softroce_invariant_test.cc breaks the PSN invariants

  // requester.cc
  bool start(SendEntry& work, std::uint64_t responses_until) noexcept;
  std::uint32_t send_read_request(const SendEntry& work, std::uint32_t number) noexcept;
  bool send_data_packet(std::uint32_t index, std::uint32_t number, bool ask) noexcept;
  template <typename Send>
  bool send_packet(const SendEntry& work, std::uint32_t number, bool ask, const Send& send) noexcept;
  void time_round_trip(std::uint32_t psn) noexcept;
  bool last_on_the_wire(std::uint32_t index) const noexcept;

  // recovery.cc
  bool on_acknowledge(const Packet& packet) noexcept;
  void on_sequence_error(std::uint32_t psn) noexcept;
  bool on_read_response(const Packet& packet) noexcept;
  void place_response(std::uint32_t index, std::uint32_t number, const Packet& packet) noexcept;
  void pass_responses() noexcept;
  bool answered_before(std::uint32_t psn) noexcept;
  void ask_again(const SendEntry& work, std::uint32_t from, std::uint32_t end) noexcept;
  bool acknowledge_before(std::uint32_t psn) noexcept;
  void cut_window(std::uint32_t psn) noexcept;
  void repair(std::uint32_t psn) noexcept;
  void go_back() noexcept;
  void reposition() noexcept;
  bool complete_sends() noexcept;
  void complete(SendEntry& work, WcStatus status) noexcept;
  bool fail(WcStatus status) noexcept;
  void restart_timer() noexcept;
  bool on_rnr_nak(std::uint8_t code) noexcept;
  void probe() noexcept;

  SoftDevice& device_;
  PeerPath& path_;
  const QueuePair& owner_;
  const QueuePairNumber number_;
  SendQueue queue_;
  std::uint32_t next_packet_ = 0;  ///< next packet of the entry at queue_.next
  PsnWindow psns_;
  std::uint32_t reads_pending_ = 0;  ///< read requests on the wire
  std::uint32_t since_ack_request_ = 0;
  std::uint32_t retries_ = 0;
  std::uint32_t rnr_rounds_ = 0;
  std::uint8_t initiator_depth_ = 0;  ///< these four as in RcAttributes
  std::uint8_t ack_timeout_ = 0;
  std::uint8_t retry_count_ = 0;
  std::uint8_t rnr_retry_ = 0;
  bool rnr_wait_ = false;
  std::uint64_t last_progress_ns_ = 0;
  std::uint64_t retry_at_ns_ = 0;  ///< time to probe, to retransmit, or to end the wait after an RNR NAK

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
};

}  // namespace sluice::rdma::softroce
