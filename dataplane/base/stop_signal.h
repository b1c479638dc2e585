// SPDX-License-Identifier: Apache-2.0
//
// Requests that signals make of a process. A shutdown request also wakes waiting threads, so that shutdown never waits
// out a polling interval.
#pragma once

#include <poll.h>
#include <sys/eventfd.h>

#include <atomic>
#include <cerrno>
#include <chrono>

#include "dataplane/base/file_descriptor.h"
#include "dataplane/base/setup_error.h"

namespace sluice {

class StopSignal {
 public:
  /// Throws SetupError.
  StopSignal() : wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    if (!wake_) throw SetupError("No file descriptor is left for the signal to stop: raise LimitNOFILE.");
  }

  /// Any thread; a signal handler may call it.
  void request() noexcept {
    const int error = errno;  // of whom a signal has interrupted
    requested_ = true;
    ::eventfd_write(wake_.get(), 1);
    errno = error;
  }
  bool requested() const noexcept { return requested_; }

  /// Notes a SIGHUP. Any thread; a signal handler may call it.
  void hang_up() noexcept { hung_up_ = true; }
  /// Returns whether SIGHUP came since the last call.
  bool take_hang_up() noexcept { return hung_up_.exchange(false); }

  /// Any thread. For so long, or until it is requested.
  void wait(std::chrono::milliseconds most) const noexcept {
    pollfd wake{wake_.get(), POLLIN, 0};
    if (!requested_) ::poll(&wake, 1, static_cast<int>(most.count()));
  }

 private:
  const FileDescriptor wake_;  ///< readable from the request on
  std::atomic<bool> requested_{false};
  std::atomic<bool> hung_up_{false};
};

}  // namespace sluice
