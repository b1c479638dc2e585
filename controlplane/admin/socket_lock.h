// SPDX-License-Identifier: Apache-2.0
//
// Lock that admits one control plane to an admin socket, across segments and PID namespaces. The lock is a
// byte of PATH.lock (base/file_descriptor.h) whose offset depends on segment and epoch. A control plane that
// takes over from a suspended one therefore locks another byte and ignores the byte of its predecessor. Any
// other locked byte prevents its start. Setup.
#pragma once

#include <cstdint>
#include <string>

namespace sluice::admin {

/// Identity of the control plane that owns the socket.
struct Owner {
  std::string segment = "sluice";
  std::uint32_t epoch = 1;
  /// Epoch of a suspended control plane of this segment whose lock is ignored. Zero if there is none.
  std::uint32_t predecessor = 0;
};

class SocketLock {
 public:
  /// Takes the lock. Throws SetupError if another control plane has the socket.
  SocketLock(const std::string& socket_path, const Owner& owner);
  ~SocketLock();
  SocketLock(const SocketLock&) = delete;
  SocketLock& operator=(const SocketLock&) = delete;

 private:
  int descriptor_;
};

}  // namespace sluice::admin
