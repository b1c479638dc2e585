// SPDX-License-Identifier: Apache-2.0
//
// Somebody wants this process to end: whoever waits is woken, so that no step of the end is a wait for an interval to pass.
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
  /// Any thread. For so long, or until it is requested.
  void wait(std::chrono::milliseconds most) const noexcept {
    pollfd wake{wake_.get(), POLLIN, 0};
    if (!requested_) ::poll(&wake, 1, static_cast<int>(most.count()));
  }

 private:
  const FileDescriptor wake_;  ///< readable from the request on
  std::atomic<bool> requested_{false};
};

}  // namespace sluice
