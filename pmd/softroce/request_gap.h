// SPDX-License-Identifier: Apache-2.0
//
// The gap between the request that a responder expects and later requests that have arrived, and the time at
// which its NAK is repeated (InfiniBand Architecture Specification volume 1, 9.7.5.1). A plain value owned by
// the responder; only its reactor may call. Times are ns.
#pragma once

#include <array>
#include <cstdint>

#include "dataplane/base/invariant.h"
#include "dataplane/base/small_algorithms.h"
#include "pmd/softroce/congestion.h"
#include "pmd/softroce/wire.h"

namespace sluice::rdma::softroce {

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

class RequestGap {
 public:
  enum class State : std::uint8_t {
    None,             ///< no later request has arrived
    Known,            ///< later requests have arrived, and the peer may be sending the expected one
    NakScheduled,     ///< later requests have arrived, and a NAK was scheduled
    AwaitingReceive,  ///< the expected request has arrived without a Receive, and an RNR NAK was scheduled
  };

  State state() const noexcept { return state_; }
  /// Returns the highest PSN after the gap. It has no meaning in State::None.
  std::uint32_t highest_psn() const noexcept { return highest_psn_; }
  /// Returns the time of the next NAK, or zero.
  std::uint64_t nak_at_ns() const noexcept { return nak_at_ns_; }
  /// Returns whether the peer has not reacted to kMaxNaksWithoutProgress NAKs.
  bool is_hopeless() const noexcept { return naks_without_progress_ >= kMaxNaksWithoutProgress; }

  /// Records the PSN of a packet that arrived while `expected` is missing. Returns whether a NAK is due. A
  /// PSN that is not above the latest one shows that the peer has retransmitted and that the missing packet
  /// was lost again, so the NAK is repeated immediately.
  [[nodiscard]] bool on_early(std::uint32_t psn, std::uint32_t expected) noexcept {
    // A PSN farther ahead is damaged or forged, because no peer has that many packets outstanding.
    const std::uint32_t plausible = psn_distance(expected, psn) <= kMaxGapPackets ? psn : expected;
    if (state_ == State::None || psn_distance(highest_psn_, plausible) > 0) highest_psn_ = plausible;
    const bool gone_back = psn_distance(early_psn_, psn) <= 0;
    early_psn_ = psn;
    if (state_ == State::AwaitingReceive || (state_ == State::NakScheduled && !gone_back)) return false;
    naks_without_progress_ = 0;
    return true;
  }
  /// Records that the request `expected` has arrived and needs a Receive, and none is posted.
  void await_receive(std::uint32_t expected) noexcept {
    if (state_ == State::None) highest_psn_ = expected;
    transition(State::AwaitingReceive);
    nak_at_ns_ = 0;
  }
  /// Records that a NAK is sent at `now_ns`, and sets the time of its repetition.
  void schedule_nak(std::uint64_t now_ns, const RoundTrip& round_trip) noexcept {
    transition(State::NakScheduled);
    await_peer(now_ns, round_trip);
    ++naks_without_progress_;
    static_cast<void>(SLUICE_INVARIANT(naks_without_progress_ <= kMaxNaksWithoutProgress, connection_state));
  }
  /// Records that the expected request has arrived.
  void on_progress() noexcept {
    static_cast<void>(SLUICE_INVARIANT(state_ != State::None, connection_state));
    if (state_ != State::Known) transition(State::Known);
    naks_without_progress_ = 0;
  }
  /// Records that packets after the gap were executed, so that another one is missing behind them.
  void move_behind_kept() noexcept { early_psn_ = highest_psn_; }
  /// Sets the time of the next NAK if the peer does not retransmit before.
  void await_peer(std::uint64_t now_ns, const RoundTrip& round_trip) noexcept {
    SLUICE_INVARIANT_DEBUG(state_ == State::Known || state_ == State::NakScheduled, connection_state);
    const std::uint64_t round_trip_ns =
        bounded(round_trip.bound_ns(kUnmeasuredRoundTripNs), kMinNakIntervalNs, kMaxNakIntervalNs);
    nak_at_ns_ = now_ns + smaller_of(round_trip_ns << naks_without_progress_, kMaxNakIntervalNs);
  }
  /// Ends the gap.
  void forget() noexcept {
    transition(State::None);
    nak_at_ns_ = 0;
  }
  /// Stops the repetition of the NAK.
  void stop() noexcept { nak_at_ns_ = 0; }

 private:
  void transition(State to) noexcept {
    static constexpr auto set = [](auto... states) {
      return static_cast<std::uint8_t>(((1u << static_cast<unsigned>(states)) | ...));
    };
    using enum State;
    static constexpr std::array<std::uint8_t, 4> kAfter{
        set(NakScheduled, AwaitingReceive),               // None
        set(None, NakScheduled, AwaitingReceive),         // Known
        set(None, Known, NakScheduled, AwaitingReceive),  // NakScheduled: may repeat
        set(Known, AwaitingReceive),                      // AwaitingReceive: may repeat
    };
    static_cast<void>(SLUICE_INVARIANT(
        (kAfter[static_cast<std::size_t>(state_)] >> static_cast<unsigned>(to) & 1) != 0, connection_state));
    state_ = to;
  }

  State state_ = State::None;    ///< changed only by transition()
  std::uint32_t early_psn_ = 0;  ///< PSN of the packet after the gap that arrived last
  std::uint32_t highest_psn_ = 0;
  std::uint32_t naks_without_progress_ = 0;
  std::uint64_t nak_at_ns_ = 0;
};

}  // namespace sluice::rdma::softroce
