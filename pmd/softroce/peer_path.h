// SPDX-License-Identifier: Apache-2.0
//
// The path from a queue pair to its peer: the addresses of both ends, the link address of the next hop, the
// path MTU, the rate that congestion control allows, and the measured round trip. Both halves of the queue
// pair send through it.
//
// Only the reactor that owns the device may call; the device outlives the path. Sizes are bytes, times ns.
#pragma once

#include <cstdint>
#include <span>

#include "pmd/softroce/congestion.h"
#include "pmd/softroce/expected_headers.h"
#include "pmd/softroce/frame.h"
#include "pmd/softroce/header_template.h"
#include "pmd/softroce/softroce.h"
#include "pmd/softroce/transmitter.h"
#include "pmd/softroce/wire.h"

namespace sluice::rdma::softroce {

class SoftDevice;

/// Interval, in retries, at which one retry uses the previous link address of the peer.
inline constexpr std::uint32_t kRetriesOfHop = 4;
/// Minimum time between congestion notifications to one peer.
inline constexpr std::uint64_t kNotificationIntervalNs = 50'000;

class PeerPath {
 public:
  explicit PeerPath(SoftDevice& device) noexcept;

  /// Sets the path of a new connection.
  void open(const RcAttributes& attributes, QueuePairNumber number) noexcept;

  const PeerAddress& remote() const noexcept { return remote_; }
  std::uint32_t remote_qp() const noexcept { return remote_qp_; }
  std::uint32_t mtu() const noexcept { return mtu_; }
  /// Returns the number of packets of a message of `bytes`.
  std::uint32_t packets_of(std::uint32_t bytes) const noexcept {
    return bytes == 0 ? 1 : ((bytes - 1) >> mtu_bits_) + 1;
  }
  CongestionRate& rate() noexcept { return rate_; }
  RoundTrip& round_trip() noexcept { return round_trip_; }
  const RoundTrip& round_trip() const noexcept { return round_trip_; }

  /// Returns whether the frame was sent between the addresses of the connection.
  bool connects(const Frame& frame) const noexcept {
    return same(frame.source, route_.destination) && same(frame.destination, route_.source);
  }
  /// Records the link address of a packet of the peer, and sends to it after two packets in a row came from
  /// there. Link addresses change with the port of the peer or of a router, but a single packet may be forged
  /// or damaged.
  void follow(const std::byte* from) noexcept;
  /// Sends to the earlier link address again if a retransmitted packet of the peer came from there.
  void follow_retransmission(const std::byte* from) noexcept;
  /// Uses the link address `own` as the source from now on.
  void send_from(const LinkAddress& own) noexcept;
  /// Resolves the next hop again after `retries` retries. One retry in kRetriesOfHop uses the earlier link
  /// address of the peer, because the result of ARP or neighbour discovery may be wrong.
  void try_next_hop(std::uint32_t retries) noexcept;

  /// Returns the headers that the peer's next packet has.
  const ExpectedHeaders& expected() const noexcept { return expected_; }
  /// Learns the headers of `bytes`, a frame that passed all checks, as those of the next packets. Ignores a
  /// frame with a congestion mark, or from another link address than the one to which this path sends.
  void expect(const Frame& frame, std::span<const std::byte> bytes) noexcept;
  /// Expects no packet, so that the next one passes all checks.
  void expect_nothing() noexcept { expected_.forget(); }

  /// Sends a packet, of which the caller has set neither destination queue pair, kind nor padding.
  /// `read_until` is as in Transmitter::send(). Returns false if the caller has to try again later.
  [[gnu::always_inline]] bool send(Packet& packet, std::span<const std::byte> payload,
                                   std::uint64_t& read_until) noexcept {
    packet.bth.destination_qp = remote_qp_;
    return transmitter_.send(headers_, encoded(packet, payload.size()), payload, read_until);
  }
  /// Sends a packet with `payload_bytes` of payload in several pieces, in the same way.
  [[gnu::always_inline]] bool send(Packet& packet, Pieces pieces, std::uint32_t payload_bytes,
                                   std::uint64_t& read_until) noexcept {
    packet.bth.destination_qp = remote_qp_;
    return transmitter_.send(headers_, encoded(packet, payload_bytes), pieces, payload_bytes, read_until);
  }
  [[gnu::always_inline]] bool send_without_payload(Packet& packet) noexcept {
    std::uint64_t nothing_read = 0;
    return send(packet, std::span<const std::byte>{}, nothing_read);
  }
  /// Counts `bytes` of payload that were sent.
  void charge(std::uint32_t bytes) noexcept {
    if (rate_.limited())
      charge_limited(bytes);
    else
      rate_.note_sent();
  }
  /// Returns true if the rate does not allow a packet before paced_until_ns(), which is then set.
  bool wait_for_rate() noexcept {
    if (!rate_.limited()) [[likely]] {
      paced_until_ns_ = 0;
      return false;
    }
    return wait_while_limited();
  }
  /// Returns the time from which the rate allows the next packet, or zero if a packet need not wait.
  std::uint64_t paced_until_ns() const noexcept { return paced_until_ns_; }
  void end_pacing() noexcept { paced_until_ns_ = 0; }
  /// Reports a congestion mark to the peer, unless it was notified within kNotificationIntervalNs.
  void notify_congestion() noexcept;

 private:
  void send_to(LinkAddress hop) noexcept;
  void charge_limited(std::uint32_t bytes) noexcept;
  bool wait_while_limited() noexcept;

  SoftDevice& device_;
  Transmitter& transmitter_;  ///< of device_
  Route route_;
  HeaderTemplate headers_;      ///< network headers of route_
  ExpectedHeaders expected_;    ///< known only if latest_link_ is the destination in route_
  LinkAddress latest_link_{};   ///< link address of the peer's latest current packet
  LinkAddress earlier_link_{};  ///< link address in route_ before its last change
  PeerAddress remote_;
  std::uint32_t remote_qp_ = 0;
  std::uint32_t mtu_ = 1024;
  std::uint32_t mtu_bits_ = 10;  ///< binary logarithm of mtu_
  CongestionRate rate_;
  RoundTrip round_trip_;
  std::uint64_t paced_until_ns_ = 0;
  std::uint64_t last_notification_ns_ = 0;
};

}  // namespace sluice::rdma::softroce
