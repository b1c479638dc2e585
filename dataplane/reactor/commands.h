// SPDX-License-Identifier: Apache-2.0
//
// Commands of the control plane to one reactor: reads them from the segment's ring, executes them, and
// answers commands that require an answer. Consumer side of ReactorArea::commands; called on the reactor's
// thread. Every field of a command comes from another process and is validated.
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

}  // namespace sluice::reactor
