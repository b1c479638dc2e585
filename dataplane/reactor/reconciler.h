// SPDX-License-Identifier: Apache-2.0
//
// Reconciles the connections of a reactor with the state that the control plane desires
// (dataplane/segment/desired_state.h). Hints name changed connections; a scan over all connections, round
// robin, covers lost hints. While the control plane is down, no credit policy runs, so each connection is
// granted all the credits that it was opened with until a control plane is running again. Called on the
// reactor's thread. Every value comes from another process and is validated.
#pragma once

#include <cstddef>
#include <cstdint>

#include "dataplane/reactor/connection_setup.h"

namespace sluice::reactor {

inline constexpr std::size_t kHintsPerPass = 64;

class Reconciler {
 public:
  /// Called at setup. All arguments must outlive the object.
  Reconciler(segment::ReactorArea& area, ConnectionTable& connections, ConnectionSetup& setup,
             Publisher& publisher, Counters& counters);

  /// Handles at most kHintsPerPass hints. Returns true if any connection was changed.
  bool poll() noexcept;
  /// Reconciles an open connection without a hint.
  void reconcile(rpcrdma::Connection& connection) noexcept;
  /// Tracks the control plane's heartbeat, once per control pass. `now_ns` is the reactor's clock, whose
  /// origin differs from that of the heartbeat, so only the time of the last change of `beats` is used.
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
  std::uint64_t beat_ns_ = 0;  ///< when beats_ last changed
  bool unattended_ = false;
};

}  // namespace sluice::reactor
