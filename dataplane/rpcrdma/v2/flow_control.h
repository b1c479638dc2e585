// SPDX-License-Identifier: Apache-2.0
//
// Credits of one version 2 connection at one end (draft, section 4.3.1; the scheme is section 4.2 of the
// requirements, D2-13 to D2-17). One credit is the ability to receive one message of any type. Pure
// arithmetic; used by the connection's reactor.
#pragma once

#include <cstdint>

#include "dataplane/base/invariant.h"
#include "dataplane/base/small_algorithms.h"
#include "dataplane/rpcrdma/wire/v2.h"

namespace sluice::rpcrdma::v2 {

class FlowControl {
 public:
  /// Minimum window, in credits. With a window of one, or a grant threshold of one in a window of two, two
  /// idle peers would send grants to each other forever.
  static constexpr std::uint32_t kMinWindow = 2;
  /// Maximum window, in credits. Together with the reserve it fits a credit word.
  static constexpr std::uint32_t kMaxWindow = 65534;
  /// Maximum balance, in credits. Grants beyond it are lost (V2-043).
  static constexpr std::int32_t kMaxBalance = 65535;

  enum class Arrival : std::uint8_t {
    Credited,  ///< the peer had a credit for it
    Reserve,   ///< one more than the peer's credits: only a grant-only message is legal here
    Overrun,
  };

  /// Starts a connection on which at most `window` Receives are granted, and one more is posted as a reserve.
  /// `client` is true at the end that connected.
  void open(std::uint32_t window, bool client) noexcept {
    *this = {};
    window_ = bounded(window, kMinWindow, kMaxWindow);
    client_ = client;
  }
  /// Changes the window. Credits already granted stay valid (V2-037).
  void set_window(std::uint32_t window) noexcept { window_ = bounded(window, kMinWindow, kMaxWindow); }
  std::uint32_t window() const noexcept { return window_; }
  std::uint32_t most_receives() const noexcept { return window_ + 1; }
  /// Returns how many messages this end may still send; -1 if the peer's reserve is used as well.
  std::int32_t balance() const noexcept { return balance_; }
  /// Returns the credits that the peer has not used; negative if the peer has used the reserve.
  std::int32_t unused() const noexcept { return unused_; }
  std::uint16_t peer_limit() const noexcept { return peer_limit_; }

  /// Counts and classifies a completed Receive, regardless of its content.
  Arrival on_receive() noexcept {
    --unused_;
    return unused_ >= 0 ? Arrival::Credited : unused_ == -1 ? Arrival::Reserve : Arrival::Overrun;
  }
  /// Combines on_receive() and on_credits(). Requires that the peer has granted credits and that its limit is
  /// not zero. Returns false without counting anything if the message needs the separate functions.
  bool on_credited_message(CreditWord word) noexcept {
    const std::int32_t balance = balance_ + word.granted();
    SLUICE_INVARIANT_DEBUG(balance_ <= kMaxBalance, credit_balance);
    if (unused_ <= 0 || balance > kMaxBalance || word.limit() != peer_limit_) [[unlikely]]
      return false;
    --unused_;
    balance_ = balance;
    return true;
  }
  /// Counts the credit word of a message other than ERROR. Returns false if some of its credits exceed
  /// kMaxBalance.
  bool on_credits(CreditWord word) noexcept {
    heard_ = granted_to_us_ = true;
    SLUICE_INVARIANT_DEBUG(balance_ <= kMaxBalance, credit_balance);
    peer_limit_ = word.limit();
    balance_ += word.granted();
    if (balance_ <= kMaxBalance) [[likely]]
      return true;
    balance_ = kMaxBalance;
    return false;
  }
  /// Counts an ERROR, which returns the client's starting credit until the server has granted one (D2-16).
  void on_error() noexcept {
    heard_ = true;
    if (client_ && !granted_to_us_) ++balance_;
  }

  /// Returns the credit word of the next message, given that `posted` Receives are posted before it goes out.
  [[gnu::always_inline]] CreditWord offer(std::uint32_t posted) const noexcept {
    SLUICE_INVARIANT_DEBUG(window_ >= kMinWindow && window_ <= kMaxWindow, credit_balance);
    const std::int32_t granted =
        smaller_of(static_cast<std::int32_t>(posted) - 1, static_cast<std::int32_t>(window_));
    return {static_cast<std::uint16_t>(larger_of(granted - unused_, 0)), static_cast<std::uint16_t>(window_)};
  }
  /// Counts a message that was sent with this credit word.
  void on_send(CreditWord word) noexcept {
    --balance_;
    unused_ += word.granted();
    we_granted_ = true;
  }
  void on_send_error() noexcept {
    --balance_;
    if (!client_ && !we_granted_) ++unused_;
  }

  /// Returns true if the peer is short of credits and only a grant-only message can announce the new Receives
  /// (V2-042).
  bool grant_due(std::uint32_t posted) const noexcept {
    const auto mark = static_cast<std::int32_t>(smaller_of(window_ / 2, window_ - 2));
    return heard_ && unused() <= mark && balance() >= 0 && offer(posted).granted() > 0;
  }

 private:
  // Each end starts with one credit.
  std::int32_t unused_ = 1;
  std::int32_t balance_ = 1;
  std::uint32_t window_ = kMinWindow;
  bool client_ = false;
  bool heard_ = false;          ///< the peer has sent a message
  bool granted_to_us_ = false;  ///< by a message other than ERROR
  bool we_granted_ = false;
  std::uint16_t peer_limit_ = 0;
};

}  // namespace sluice::rpcrdma::v2
