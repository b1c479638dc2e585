// SPDX-License-Identifier: Apache-2.0
//
// Signals of a process: requests that arrive as signals, and signals that have no meaning for a plane.
#pragma once

#include <poll.h>
#include <sys/eventfd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <initializer_list>

#include "dataplane/base/file_descriptor.h"
#include "dataplane/base/setup_error.h"

namespace sluice {

/// Requests to a process that arrive as signals. A shutdown request also wakes waiting threads, so that
/// shutdown never waits out a polling interval.
class StopSignal {
 public:
  /// Creates the eventfd. Throws SetupError.
  StopSignal() : wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    if (!wake_) throw SetupError("No file descriptor is left for the stop signal. Raise LimitNOFILE.");
  }

  /// Requests the shutdown. Any thread; safe in a signal handler.
  void request() noexcept {
    const int error = errno;  // errno of the interrupted code
    requested_ = true;
    ::eventfd_write(wake_.get(), 1);
    errno = error;
  }
  bool requested() const noexcept { return requested_; }

  /// Records a SIGHUP. Any thread; safe in a signal handler.
  void hang_up() noexcept { hung_up_ = true; }
  /// Returns whether a SIGHUP was recorded since the last call.
  bool take_hang_up() noexcept { return hung_up_.exchange(false); }

  /// Waits for at most `most`, or until the shutdown is requested. Any thread.
  void wait(std::chrono::milliseconds most) const noexcept {
    pollfd wake{wake_.get(), POLLIN, 0};
    if (!requested_) ::poll(&wake, 1, static_cast<int>(most.count()));
  }

 private:
  const FileDescriptor wake_;  ///< readable after the request
  std::atomic<bool> requested_{false};
  std::atomic<bool> hung_up_{false};
};

/// Ignores signals that stray `kill` commands, timers, closed pipes, terminals and file size limits send. The
/// default action of most of them ends the process, and with the data plane all exported files in memory.
/// Called before threads are started. Signals that report a defect of the program (such as SIGSEGV and
/// SIGABRT), SIGQUIT and SIGTSTP keep their default actions.
inline void ignore_meaningless_signals() noexcept {
  for (const int number : {SIGUSR1, SIGUSR2, SIGPIPE, SIGALRM, SIGVTALRM, SIGPROF, SIGPOLL, SIGPWR, SIGSTKFLT,
                           SIGXFSZ, SIGTTIN, SIGTTOU})
    std::signal(number, SIG_IGN);
  for (int number = SIGRTMIN; number <= SIGRTMAX; ++number) std::signal(number, SIG_IGN);
}

}  // namespace sluice
