// SPDX-License-Identifier: Apache-2.0
//
// Credits of one version 2 connection at one end (draft, section 4.3.1; the scheme is section 4.2 of the
// requirements, D2-13 to D2-17). One credit is the ability to receive one message of any type. Pure
// arithmetic; the connection's reactor.
#pragma once

#include <cstdint>

#include "dataplane/base/small_algorithms.h"
#include "dataplane/rpcrdma/wire/v2.h"

namespace sluice::rpcrdma::v2 {

class FlowControl {
 public:
  /// A window of one, or a mark of half of two, would let two idle peers grant to each other for ever.
  static constexpr std::uint32_t kMinWindow = 2;
  /// With the reserve, what may have to be granted at once still fits a credit word.
  static constexpr std::uint32_t kMaxWindow = 65534;
  /// Most credits of the peer's that count; what it grants beyond them is lost (V2-043).
  static constexpr std::int32_t kMaxBalance = 65535;

  enum class Arrival : std::uint8_t {
    Credited,  ///< the peer had a credit for it
    Reserve,   ///< one more than it had: a grant-only message is legal here, nothing else
    Overrun,
  };

  /// `window` Receives are granted at most; one more is posted. `client` is the end that connected.
  void open(std::uint32_t window, bool client) noexcept {
    *this = {};
    window_ = bounded(window, kMinWindow, kMaxWindow);
    client_ = client;
  }
  /// Credits already given stay valid (V2-037).
  void set_window(std::uint32_t window) noexcept { window_ = bounded(window, kMinWindow, kMaxWindow); }
  std::uint32_t window() const noexcept { return window_; }
  std::uint32_t most_receives() const noexcept { return window_ + 1; }
  /// Messages that we may still send; -1 when the peer's reserve is used as well.
  std::int32_t balance() const noexcept { return balance_; }
  /// Credits the peer has not used; negative when it has used the reserve.
  std::int32_t unused() const noexcept { return unused_; }
  std::uint16_t peer_limit() const noexcept { return peer_limit_; }

  /// A Receive has completed, whatever is in it.
  Arrival on_receive() noexcept {
    --unused_;
    return unused_ >= 0 ? Arrival::Credited : unused_ == -1 ? Arrival::Reserve : Arrival::Overrun;
  }
  /// on_receive() and on_credits() in one step, of a peer that has granted something and keeps its limit, which is not
  /// zero. False: some of it needs a closer look, and nothing has been counted.
  bool on_credited_message(CreditWord word) noexcept {
    const std::int32_t balance = balance_ + word.granted();
    if (unused_ <= 0 || balance > kMaxBalance || word.limit() != peer_limit_) [[unlikely]]
      return false;
    --unused_;
    balance_ = balance;
    return true;
  }
  /// The credit word of a message that is no ERROR. False when some of it cannot be counted.
  bool on_credits(CreditWord word) noexcept {
    heard_ = granted_to_us_ = true;
    peer_limit_ = word.limit();
    balance_ += word.granted();
    if (balance_ <= kMaxBalance) [[likely]]
      return true;
    balance_ = kMaxBalance;
    return false;
  }
  /// An ERROR gives the client its starting credit back until the server has granted one (D2-16).
  void on_error() noexcept {
    heard_ = true;
    if (client_ && !granted_to_us_) ++balance_;
  }

  /// What the next message offers, when `posted` Receives are posted before it goes out.
  [[gnu::always_inline]] CreditWord offer(std::uint32_t posted) const noexcept {
    const std::int32_t granted =
        smaller_of(static_cast<std::int32_t>(posted) - 1, static_cast<std::int32_t>(window_));
    return {static_cast<std::uint16_t>(larger_of(granted - unused_, 0)), static_cast<std::uint16_t>(window_)};
  }
  /// A message with this credit word is on its way.
  void on_send(CreditWord word) noexcept {
    --balance_;
    unused_ += word.granted();
    we_granted_ = true;
  }
  void on_send_error() noexcept {
    --balance_;
    if (!client_ && !we_granted_) ++unused_;
  }

  /// Whether the peer runs short and nothing but a grant-only message tells it of new Receives (V2-042).
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
  bool heard_ = false;          ///< the peer has sent something
  bool granted_to_us_ = false;  ///< by a message that is no ERROR
  bool we_granted_ = false;
  std::uint16_t peer_limit_ = 0;
};

}  // namespace sluice::rpcrdma::v2
