// SPDX-License-Identifier: Apache-2.0
//
// Commands of the control plane to one reactor: takes them from the segment's ring, carries them out, and
// answers those that want an answer. Consumer side of ReactorArea::commands; the reactor's thread. Every
// field of a command comes from another process: no value of it is trusted.
#pragma once

#include <cstddef>
#include <optional>

#include "dataplane/base/clock.h"
#include "dataplane/reactor/connection_setup.h"
#include "dataplane/reactor/server_dialer.h"
#include "dataplane/reactor/setup_pace.h"

namespace sluice::reactor {

inline constexpr std::size_t kCommandsPerPass = 8;

class Commands {
 public:
  /// Setup. Everything given outlives it.
  Commands(segment::ReactorArea& area, ConnectionSetup& setup, ServerDialer& dialer, EventSender& events,
           Counters& counters, Clock clock);

  /// At most kCommandsPerPass of them. One that makes a connection waits until it is due (SetupPace) and the device has a queue
  /// pair, and then until the device has connected it, and those behind it with it; so do all while an answer finds no room in
  /// the events' ring. True when there were any, or one waits, but not for room.
  bool poll() noexcept;
  /// A Shutdown has come.
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
  std::optional<segment::Command> waiting_;   ///< taken from the ring; it is not due yet
  std::optional<segment::Event> connecting_;  ///< the answer to come, when the device has connected
  std::optional<segment::Event> answer_;      ///< to the last command; it found no room yet
  bool shutdown_ = false;
};

}  // namespace sluice::reactor
