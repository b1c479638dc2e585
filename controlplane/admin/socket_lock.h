// SPDX-License-Identifier: Apache-2.0
//
// One control plane at an admin socket, of whatever segment and PID namespace. The lock is a byte of PATH.lock
// (base/file_lock.h), chosen by segment and epoch, so that a control plane that takes over from one that is stopped
// gets a byte of its own, while everybody else's stand in its way. Setup.
#pragma once

#include <cstdint>
#include <string>

namespace sluice::admin {

/// Whose socket it is.
struct Owner {
  std::string segment = "sluice";
  std::uint32_t epoch = 1;
  /// Of the same segment, stopped, whose lock does not count. Zero: none.
  std::uint32_t predecessor = 0;
};

class SocketLock {
 public:
  /// Throws SetupError when another control plane has the socket.
  SocketLock(const std::string& socket_path, const Owner& owner);
  ~SocketLock();
  SocketLock(const SocketLock&) = delete;
  SocketLock& operator=(const SocketLock&) = delete;

 private:
  int descriptor_;
};

}  // namespace sluice::admin
