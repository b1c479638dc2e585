// SPDX-License-Identifier: Apache-2.0
//
// Brings the connections of a reactor to what the control plane wants of them (dataplane/segment/wanted.h). Hints say
// which have changed; looking at all of them in turn finds those whose hint was lost. The reactor's thread. Every value
// comes from another process: none of it is trusted.
#pragma once

#include <cstddef>

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

 private:
  bool follow(rpcrdma::Connection& connection) noexcept;

  segment::ReactorArea& area_;
  ConnectionTable& connections_;
  ConnectionSetup& setup_;
  Publisher& publisher_;
  Counters& counters_;
};

}  // namespace sluice::reactor
