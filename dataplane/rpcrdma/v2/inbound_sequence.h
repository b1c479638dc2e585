// SPDX-License-Identifier: Apache-2.0
//
// Receiving side of Message Continuation on one connection (draft, sections 4.2 and 6.3.2.2; rows V2-084 to
// V2-095). Tracks which message continues which by their identities, without payload. Used by the
// connection's reactor.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "dataplane/base/invariant.h"
#include "dataplane/rpcrdma/wire/v2.h"

namespace sluice::rpcrdma::v2 {

class InboundSequence {
 public:
  /// Fields that must be equal in all parts (V2-086).
  struct Identity {
    rpc::Xid xid{};
    HeaderType type = HeaderType::Msg;
    bool response = false;
    bool operator==(const Identity&) const = default;
  };

  enum class Step : std::uint8_t {
    Whole,  ///< belongs to no sequence
    First,  ///< begins a sequence
    Middle,
    Last,
    Broken,   ///< breaks the sequence in progress; broken() returns its identity
    Dropped,  ///< a later part of an abandoned sequence
  };

  /// Returns true if no sequence is in progress or being drained; the next message without MORE is then
  /// whole.
  bool idle() const noexcept { return !current_ && drained_ == 0; }
  bool in_progress() const noexcept { return current_.has_value(); }
  const Identity& current() const noexcept { return *current_; }
  const Identity& broken() const noexcept { return broken_; }

  /// Classifies the next message. Grant-only messages and ERROR are not passed here because they may arrive
  /// between parts (D2-38).
  Step next(const Identity& message, bool more) noexcept {
    if (current_ && *current_ == message) {
      if (more) return Step::Middle;
      current_.reset();
      return Step::Last;
    }
    if (current_) {
      give_up();
      if (more) drain(message);
      return Step::Broken;
    }
    for (auto& given_up : draining_) {
      if (!given_up || given_up->xid != message.xid || given_up->response != message.response) continue;
      if (!more) {
        SLUICE_INVARIANT_DEBUG(drained_ > 0, list_membership);
        given_up.reset();
        --drained_;
      }
      return Step::Dropped;
    }
    if (!more) return Step::Whole;
    current_ = message;
    return Step::First;
  }

  /// Abandons the sequence in progress. Its later parts are dropped (D2-40).
  void give_up() noexcept {
    if (!current_) return;
    broken_ = *current_;
    drain(*current_);
    current_.reset();
  }

 private:
  /// Records an abandoned sequence whose later parts are dropped. Two are kept, the sequence that was broken
  /// and the sequence that broke it; a third replaces the oldest.
  void drain(const Identity& identity) noexcept {
    auto& place = draining_[next_drained_++ % draining_.size()];
    drained_ += place ? 0 : 1;
    place = identity;
    static_cast<void>(SLUICE_INVARIANT(drained_ <= draining_.size(), list_membership));
  }

  std::optional<Identity> current_;
  Identity broken_;
  std::array<std::optional<Identity>, 2> draining_;
  std::uint32_t next_drained_ = 0;
  std::uint32_t drained_ = 0;
};

}  // namespace sluice::rpcrdma::v2
