// SPDX-License-Identifier: Apache-2.0
//
// Requests of the control plane to one reactor: commands, which Commands executes at the rate of SetupPace,
// and the desired state of connections, which Reconciler applies. Called on the reactor's thread. Every field
// comes from another process and is validated.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "dataplane/base/clock.h"
#include "dataplane/base/invariant.h"
#include "dataplane/base/small_algorithms.h"
#include "dataplane/reactor/connection_setup.h"

namespace sluice::reactor {

/// Limits the rate at which a reactor makes connections. Creating and destroying a queue pair costs as much
/// as many calls and cannot be interrupted. Without a limit, peers that reconnect as fast as possible would
/// take most of the reactor's time and delay the calls of others. Connections are therefore made one at a
/// time, with time for calls between them. Times in nanoseconds, of one monotonic clock. Used on the
/// reactor's thread.
class SetupPace {
 public:
  /// Minimum interval between connections, which allows 2,000 per second. A NULL call takes some
  /// microseconds, and the setup and teardown of a connection are spread over several iterations, so fewer
  /// than one of 100 calls is delayed.
  static constexpr std::uint64_t kIntervalNs = 500'000;
  /// Time for calls, as a multiple of the time that the device took to make the connection, limited to
  /// kMostNs. The limit prevents peers from waiting for seconds after the reactor was preempted while making
  /// a connection.
  static constexpr std::uint64_t kRest = 32;
  static constexpr std::uint64_t kMostNs = 10'000'000;

  bool due(std::uint64_t now_ns) const noexcept { return now_ns >= next_ns_; }
  /// Called when a connection was made, or was refused at a similar cost.
  void made(std::uint64_t begin_ns, std::uint64_t end_ns) noexcept {
    static_cast<void>(SLUICE_INVARIANT(end_ns >= begin_ns, timer_state));
    next_ns_ = end_ns + bounded(kRest * (end_ns - begin_ns), kIntervalNs, kMostNs);
  }

 private:
  std::uint64_t next_ns_ = 0;
};

inline constexpr std::size_t kCommandsPerPass = 8;

/// Commands of the control plane to one reactor: reads them from the segment's ring, executes them, and
/// answers commands that require an answer. Consumer side of ReactorArea::commands.
class Commands {
 public:
  /// Called at setup. All arguments must outlive the object.
  Commands(segment::ReactorArea& area, ConnectionSetup& setup, ServerDialer& dialer, EventSender& events,
           Counters& counters, Clock clock);

  /// Executes at most kCommandsPerPass commands. A command that makes a connection waits until it is due
  /// (SetupPace) and the device has a queue pair, and then until the device has connected it. Later commands
  /// wait behind it. All commands wait while an answer finds no room in the ring of events. Returns true if
  /// there were any commands or one is waiting for anything but room for an answer.
  bool poll() noexcept;
  /// Returns true if a Shutdown command has been executed.
  bool shutdown_requested() const noexcept { return shutdown_; }

 private:
  void run(const segment::Command& command) noexcept;
  segment::CommandStatus execute(const segment::Command& command, segment::Event& done) noexcept;
  bool finish_connecting() noexcept;
  void answer(const segment::Event& done) noexcept;
  bool send_answer() noexcept;

  segment::ReactorArea& area_;
  ConnectionSetup& setup_;
  ServerDialer& dialer_;
  EventSender& events_;
  Counters& counters_;
  const Clock clock_;
  SetupPace pace_;
  std::optional<segment::Command> waiting_;   ///< taken from the ring, not due yet
  std::optional<segment::Event> connecting_;  ///< its answer, to be sent when the device has connected
  std::optional<segment::Event> answer_;      ///< answer to the last command, while it finds no room
  bool shutdown_ = false;
};

inline constexpr std::size_t kHintsPerPass = 64;

/// Reconciles the connections of a reactor with the state that the control plane desires
/// (dataplane/segment/desired_state.h). Hints name changed connections; a scan over all connections, round
/// robin, covers lost hints. While the control plane is down, no credit policy runs, so each connection is
/// granted all the credits that it was opened with until a control plane is running again. Called on the
/// reactor's thread. Every value comes from another process and is validated.
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
