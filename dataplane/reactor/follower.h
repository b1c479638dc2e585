// SPDX-License-Identifier: Apache-2.0
//
// Brings the connections of a reactor to what the control plane wants of them (dataplane/segment/wanted.h). Hints say
// which have changed; looking at all of them in turn finds those whose hint was lost. While the control plane is away,
// nobody decides who needs how many credits: each connection gets all that it was opened with, until there is one again.
// The reactor's thread. Every value comes from another process: none of it is trusted.
#pragma once

#include <cstddef>
#include <cstdint>

#include "dataplane/reactor/connection_setup.h"

namespace sluice::reactor {

inline constexpr std::size_t kHintsPerPass = 64;

class Follower {
 public:
  /// Setup. Everything given outlives it.
  Follower(segment::ReactorArea& area, ConnectionTable& connections, ConnectionSetup& setup,
           Publisher& publisher, Counters& counters);

  /// At most kHintsPerPass hints. True when a connection was changed.
  bool poll() noexcept;
  /// Looks at one that is open, without a hint.
  void look(rpcrdma::Connection& connection) noexcept;
  /// Once in each control pass: whether the control plane's heart beats. `now_ns` is the reactor's clock, whose zero is
  /// not the heartbeat's: what counts is when `beats` last changed.
  void observe(std::uint64_t beats, std::uint64_t now_ns) noexcept;

 private:
  void restore_credits(rpcrdma::Connection& connection) noexcept;
  bool follow(rpcrdma::Connection& connection) noexcept;

  segment::ReactorArea& area_;
  ConnectionTable& connections_;
  ConnectionSetup& setup_;
  Publisher& publisher_;
  Counters& counters_;
  std::uint64_t beats_ = 0;
  std::uint64_t beat_ns_ = 0;  ///< when they last changed
  bool unattended_ = false;
};

}  // namespace sluice::reactor
