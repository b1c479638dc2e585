// SPDX-License-Identifier: Apache-2.0
//
// Which message continues which: the receiving side of Message Continuation on one connection (draft,
// sections 4.2 and 6.3.2.2; rows V2-084 to V2-095). Knows identities only, no payload. The connection's
// reactor.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "dataplane/rpcrdma/wire/v2.h"

namespace sluice::rpcrdma::v2 {

class InboundSequence {
 public:
  /// What must be the same in all parts (V2-086).
  struct Identity {
    rpc::Xid xid{};
    HeaderType type = HeaderType::Msg;
    bool response = false;
    bool operator==(const Identity&) const = default;
  };

  enum class Step : std::uint8_t {
    Whole,  ///< belongs to no sequence
    First,  ///< begins one
    Middle,
    Last,
    Broken,   ///< breaks the sequence in progress: broken() tells whose it was
    Dropped,  ///< a later part of a sequence that was given up
  };

  /// No message is in parts: the next one without MORE is whole.
  bool idle() const noexcept { return !current_ && drained_ == 0; }
  bool in_progress() const noexcept { return current_.has_value(); }
  const Identity& current() const noexcept { return *current_; }
  const Identity& broken() const noexcept { return broken_; }

  /// The next message, which is neither grant-only nor an ERROR: those pass between parts (D2-38).
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
        given_up.reset();
        --drained_;
      }
      return Step::Dropped;
    }
    if (!more) return Step::Whole;
    current_ = message;
    return Step::First;
  }

  /// The sequence in progress is given up; its later parts are dropped (D2-40).
  void give_up() noexcept {
    if (!current_) return;
    broken_ = *current_;
    drain(*current_);
    current_.reset();
  }

 private:
  /// A sequence that was given up, and the one that broke it: the oldest is forgotten.
  void drain(const Identity& identity) noexcept {
    auto& place = draining_[next_drained_++ % draining_.size()];
    drained_ += place ? 0 : 1;
    place = identity;
  }

  std::optional<Identity> current_;
  Identity broken_;
  std::array<std::optional<Identity>, 2> draining_;
  std::uint32_t next_drained_ = 0;
  std::uint32_t drained_ = 0;
};

}  // namespace sluice::rpcrdma::v2
