// SPDX-License-Identifier: Apache-2.0
//
// A reliable connection (InfiniBand Architecture Specification volume 1, 9.7). Its requester sends requests
// and repairs their losses, its responder executes the requests of the peer, and both send through its path
// to the peer. The queue pair passes packets and timers to them. If one of them fails, it enters Error.
// Otherwise it sets its timer, and the device schedules its transmission.
//
// Only the reactor that owns its device may call; the device outlives it. Memory of posted work requests
// belongs to the queue pair until their completion. PSNs are 24 bits, times ns, sizes bytes; errors are
// WcStatus.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "pmd/softroce/frame.h"
#include "pmd/softroce/peer_path.h"
#include "pmd/softroce/requester.h"
#include "pmd/softroce/responder.h"
#include "pmd/softroce/softroce.h"
#include "pmd/softroce/timer_wheel.h"
#include "pmd/softroce/wire.h"

namespace sluice::rdma::softroce {

class SoftDevice;

/// Number of packets that one queue pair sends before the next one transmits.
inline constexpr std::uint32_t kPacketsPerTransmit = 32;

class SoftQueuePair final : public QueuePair {
 public:
  SoftQueuePair(SoftDevice& device, QueuePairNumber number, const QueuePairLimits& limits);
  ~SoftQueuePair() override;

  QueuePairNumber number() const noexcept override { return number_; }
  // Attributes of the connection, valid once it exists.
  std::uint32_t remote_qp() const noexcept { return path_.remote_qp(); }
  const PeerAddress& remote() const noexcept { return path_.remote(); }
  State state() const noexcept override { return state_; }
  std::size_t post_send(std::span<const SendWr> wrs) noexcept override;
  std::size_t post_recv(std::span<const RecvWr> wrs) noexcept override;
  std::size_t send_room() const noexcept override { return requester_.queue().room(); }
  std::optional<Rkey> bind_window(MemoryWindow window, std::span<std::byte> bytes, Lkey lkey,
                                  AccessFlags access) noexcept override;
  void to_error() noexcept override;
  bool connect(const RcAttributes& attributes) noexcept override;
  bool heard_from_peer() const noexcept override { return heard_; }

  // Interface for the device.
  /// Returns the headers that the peer's next packet has. Only in ReadyToSend there are any.
  const ExpectedHeaders& expected() const noexcept { return path_.expected(); }
  /// Handles a packet of the connection whose headers were expected.
  void on_expected(const Packet& packet) noexcept;
  /// Handles any other packet for this queue pair, from the frame `bytes`.
  void on_packet(const Frame& frame, std::span<const std::byte> bytes, const Packet& packet) noexcept;
  /// Uses the link address `own` as the source from now on.
  void send_from(const LinkAddress& own) noexcept { path_.send_from(own); }
  /// Sends up to kPacketsPerTransmit packets. Returns true if there is more to send.
  bool transmit() noexcept;
  /// Handles expired timers. Called at deadline_ns() or later.
  void on_timer(std::uint64_t now_ns) noexcept;
  std::uint64_t deadline_ns() const noexcept { return deadline_ns_; }
  std::size_t depth() const noexcept { return requester_.queue().depth() + responder_.recv_depth(); }

  bool active = false;  ///< in the device's list of queue pairs to transmit
  TimerWheel<SoftQueuePair>::Timer timer{*this};

 private:
  friend struct QueuePairProbe;  // tests/driver/softroce_invariant_test.cc breaks the PSN invariants

  void locate_peer(const Packet& packet, const std::byte* from) noexcept;
  bool on_response(const Packet& packet, const std::byte* from) noexcept;
  bool has_work() const noexcept;
  void apply(bool goes_on) noexcept;
  void set_deadline() noexcept;

  SoftDevice& device_;
  const QueuePairNumber number_;
  State state_ = State::Init;
  bool heard_ = false;
  const std::uint8_t initiator_depth_;  ///< limits of RcAttributes
  const std::uint8_t rnr_retry_;
  /// The earliest of the times at which the requester, the path or the responder has to act; zero if there is
  /// none.
  std::uint64_t deadline_ns_ = 0;
  PeerPath path_;
  Requester requester_;
  Responder responder_;
};

}  // namespace sluice::rdma::softroce
