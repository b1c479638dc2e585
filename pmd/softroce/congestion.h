// SPDX-License-Identifier: Apache-2.0
//
// Congestion control of one queue pair, with two independent controls: a window of unacknowledged packets
// that halves on loss and grows by one packet per round trip (RFC 5681), and a rate that congestion
// notifications reduce and timers restore (DCQCN: Zhu and others, "Congestion control for large-scale RDMA
// deployments", SIGCOMM 2015, section 5).
//
// Plain values owned by the queue pair; only its reactor may call. Times in ns, rates in bytes per ns,
// windows in packets. No errors.
#pragma once

#include <cstdint>

#include "dataplane/base/invariant.h"
#include "dataplane/base/small_algorithms.h"

namespace sluice::rdma::softroce {

class CongestionWindow {
 public:
  static constexpr std::uint32_t kMin = 2;
  static constexpr std::uint32_t kInitial = 64;

  /// Resets the window for a new connection.
  void open(std::uint32_t max_packets) noexcept {
    max_ = larger_of(max_packets, kMin);
    window_ = smaller_of(kInitial, max_);
    threshold_ = max_;
    progress_ = before_timeout_ = 0;
  }
  std::uint32_t packets() const noexcept { return window_; }

  void on_acknowledged(std::uint32_t packets) noexcept {
    SLUICE_INVARIANT_DEBUG(window_ >= kMin && window_ <= max_, credit_balance);
    if (window_ >= max_) return;
    if (window_ < threshold_) {
      window_ = smaller_of(window_ + packets, max_);
      return;
    }
    progress_ += packets;
    if (progress_ < window_) return;
    progress_ -= window_;
    ++window_;
  }
  void on_loss() noexcept {
    static_cast<void>(SLUICE_INVARIANT(window_ >= kMin && window_ <= max_, credit_balance));
    window_ = threshold_ = larger_of(window_ / 2, kMin);
    progress_ = 0;
  }
  void on_timeout() noexcept {
    if (before_timeout_ == 0) {
      before_timeout_ = window_;
      threshold_before_ = threshold_;
    }
    threshold_ = larger_of(window_ / 2, kMin);
    window_ = kMin;
    progress_ = 0;
  }
  /// Returns whether nothing was acknowledged since a timeout.
  bool after_timeout() const noexcept { return before_timeout_ != 0; }
  /// Restores the window if the timeout was spurious (RFC 4015, section 3.2) and returns whether it was.
  /// Called at the first acknowledgement after a timeout, `since_ns` after packets were retransmitted. The
  /// timeout was spurious if the acknowledgement arrives earlier than a response to the retransmission can.
  bool undoes_timeout(std::uint64_t since_ns, std::uint64_t round_trip_ns) noexcept {
    const bool spurious = since_ns < round_trip_ns / 2;
    if (spurious) {
      window_ = larger_of(window_, before_timeout_);
      threshold_ = threshold_before_;
    }
    before_timeout_ = 0;
    static_cast<void>(SLUICE_INVARIANT(window_ >= kMin && window_ <= max_, credit_balance));
    return spurious;
  }

 private:
  std::uint32_t max_ = kInitial;
  std::uint32_t window_ = kInitial;
  std::uint32_t threshold_ = kInitial;  ///< slow start below, congestion avoidance above
  std::uint32_t progress_ = 0;
  std::uint32_t before_timeout_ =
      0;  ///< window before the timeouts since the latest acknowledgement; zero if there were none
  std::uint32_t threshold_before_ = 0;  ///< threshold before those timeouts
};

class CongestionRate {
 public:
  static constexpr double kDefaultLineRate = 12.5;  ///< 100 Gbit/s, for a link without a known speed
  static constexpr double kMinRate = 0.01;
  static constexpr double kGain = 1.0 / 16;
  static constexpr double kAdditiveStep = 0.05;
  static constexpr int kFastRecoverySteps = 5;
  static constexpr std::uint64_t kCutIntervalNs = 50'000;
  static constexpr std::uint64_t kIncreaseIntervalNs = 300'000;
  static constexpr std::uint64_t kAlphaIntervalNs = 55'000;

  /// Converts a link speed of DPDK in Mbit/s to bytes per ns. Zero and the largest number mean that the speed
  /// is unknown.
  static constexpr double of_link(std::uint32_t megabits) noexcept {
    return megabits == 0 || megabits == ~std::uint32_t{0} ? kDefaultLineRate : megabits / 8e3;
  }
  /// Resets the rate for a new connection on a link of this rate.
  void open(double line_rate) noexcept {
    *this = {};
    line_rate_ = rate_ = target_ = larger_of(line_rate, kMinRate);
  }
  bool limited() const noexcept { return limited_; }
  double bytes_per_ns() const noexcept { return limited_ ? rate_ : line_rate_; }

  /// Reduces the rate on a congestion notification. Returns false without a reduction if no packet was sent
  /// since the last cut, because then none can have met congestion, or if the last cut was less than
  /// kCutIntervalNs ago. Notifications have no sequence number, so a forger can cause at most one cut per
  /// packet sent.
  bool on_notification(std::uint64_t now_ns) noexcept {
    advance(now_ns);
    if (!sent_ || (limited_ && now_ns - last_cut_ns_ < kCutIntervalNs)) return false;
    sent_ = false;
    if (!limited_) {
      limited_ = true;
      rate_ = line_rate_;
      alpha_ = 1;
      next_send_ns_ = now_ns;
    }
    target_ = rate_;
    rate_ = larger_of(rate_ * (1 - alpha_ / 2), kMinRate);
    static_cast<void>(SLUICE_INVARIANT(alpha_ >= 0 && alpha_ <= 1, credit_balance));
    alpha_ = (1 - kGain) * alpha_ + kGain;
    last_cut_ns_ = last_alpha_ns_ = last_increase_ns_ = now_ns;
    increases_ = 0;
    return true;
  }

  /// Returns when the next packet may be sent, or zero if it may be sent now.
  std::uint64_t wait_until(std::uint64_t now_ns) noexcept {
    if (!limited_) return 0;
    advance(now_ns);
    return limited_ && next_send_ns_ > now_ns ? next_send_ns_ : 0;
  }
  /// Records that a packet was sent, which suffices while the rate is not limited.
  void note_sent() noexcept { sent_ = true; }
  void charge(std::uint32_t bytes, std::uint64_t now_ns) noexcept {
    note_sent();
    SLUICE_INVARIANT_DEBUG(rate_ >= kMinRate, credit_balance);
    if (!limited_) return;
    next_send_ns_ = larger_of(next_send_ns_, now_ns) + static_cast<std::uint64_t>(bytes / rate_);
  }

 private:
  /// Runs the timers that are due, for at most kMaxPeriods periods each.
  void advance(std::uint64_t now_ns) noexcept {
    constexpr int kMaxPeriods = 64;
    for (int i = 0; limited_ && i < kMaxPeriods && now_ns - last_alpha_ns_ >= kAlphaIntervalNs; ++i) {
      alpha_ *= 1 - kGain;
      last_alpha_ns_ += kAlphaIntervalNs;
    }
    for (int i = 0; limited_ && i < kMaxPeriods && now_ns - last_increase_ns_ >= kIncreaseIntervalNs; ++i) {
      last_increase_ns_ += kIncreaseIntervalNs;
      if (++increases_ > kFastRecoverySteps) target_ += kAdditiveStep * increases_;
      rate_ = (rate_ + target_) / 2;
      if (rate_ >= line_rate_) limited_ = false;
    }
  }

  bool limited_ = false;
  bool sent_ = false;  ///< a packet was sent since the last cut
  double line_rate_ = kDefaultLineRate;
  double rate_ = kDefaultLineRate;
  double target_ = kDefaultLineRate;
  double alpha_ = 1;
  int increases_ = 0;
  std::uint64_t next_send_ns_ = 0;
  std::uint64_t last_cut_ns_ = 0;
  std::uint64_t last_alpha_ns_ = 0;
  std::uint64_t last_increase_ns_ = 0;
};

/// Round-trip time estimate and the retransmission timeout derived from it (RFC 6298).
class RoundTrip {
 public:
  /// Smallest retransmission timeout. A peer responds from its polling loop or from an interrupt, without
  /// further delay.
  static constexpr std::uint64_t kMinTimeoutNs = 200'000;
  /// Smallest delay before the last packet is retransmitted to request its acknowledgement (RFC 8985, section
  /// 7).
  static constexpr std::uint64_t kMinProbeNs = 10'000;

  void open(std::uint64_t max_timeout_ns) noexcept {
    *this = {};
    max_timeout_ns_ = larger_of(max_timeout_ns, kMinTimeoutNs);
  }
  void sample(std::uint64_t ns) noexcept {
    if (!measured_) {
      measured_ = true;
      smoothed_ns_ = ns;
      variation_ns_ = ns / 2;
    } else {
      const std::uint64_t error = ns > smoothed_ns_ ? ns - smoothed_ns_ : smoothed_ns_ - ns;
      variation_ns_ = (3 * variation_ns_ + error) / 4;
      smoothed_ns_ = (7 * smoothed_ns_ + ns) / 8;
    }
    doublings_ = 0;
  }
  std::uint64_t smoothed_ns() const noexcept { return smoothed_ns_; }
  /// Returns an upper estimate of the round trip, or `otherwise` if no round trip was measured.
  std::uint64_t bound_ns(std::uint64_t otherwise) const noexcept {
    return measured_ ? smoothed_ns_ + 4 * variation_ns_ : otherwise;
  }
  /// Doubles the timeout until the next sample. An acknowledgement of a retransmitted packet gives no sample
  /// (sections 3 and 5.5).
  void on_timeout() noexcept { doublings_ = smaller_of(doublings_ + 1, kMaxDoublings); }
  /// Halves the number of doublings after an acknowledgement that gave no sample and followed no timeout.
  /// Under heavy loss nearly all packets are retransmitted, so the next sample may be far away.
  void on_progress() noexcept { doublings_ /= 2; }
  std::uint64_t timeout_ns() const noexcept {
    const std::uint64_t base = measured_ ? smoothed_ns_ + 4 * variation_ns_ : max_timeout_ns_ / 4;
    const std::uint64_t first = bounded(base, kMinTimeoutNs, max_timeout_ns_);
    SLUICE_INVARIANT_DEBUG(doublings_ <= kMaxDoublings && max_timeout_ns_ >= kMinTimeoutNs, timer_state);
    return smaller_of(first << doublings_, max_timeout_ns_);
  }
  /// Returns the delay before a probe, about two round trips. Returns timeout_ns() without a sample or after
  /// a timeout, because a probe would then be too late.
  std::uint64_t probe_ns() const noexcept {
    if (!measured_ || doublings_ > 0) return timeout_ns();
    return larger_of(2 * smoothed_ns_ + variation_ns_, kMinProbeNs);
  }

 private:
  static constexpr std::uint32_t kMaxDoublings = 12;

  bool measured_ = false;
  std::uint64_t smoothed_ns_ = 0;
  std::uint64_t variation_ns_ = 0;
  std::uint32_t doublings_ = 0;
  std::uint64_t max_timeout_ns_ = kMinTimeoutNs;
};

}  // namespace sluice::rdma::softroce
