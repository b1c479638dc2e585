// SPDX-License-Identifier: Apache-2.0
//
// The socket at which TCP clients arrive: one for all reactors. Each accepts only while it has room, so that
// a client goes to a reactor that has, and waits with the kernel while none has. Made and destroyed by the
// main thread; the descriptor may be used by any.
#pragma once

#include <sys/socket.h>

#include <cstdint>

namespace sluice::tcp_clients {

class Listener {
 public:
  /// Setup. Throws SetupError if it cannot listen there.
  Listener(const sockaddr_storage& address, socklen_t address_bytes);
  ~Listener();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  int descriptor() const noexcept { return descriptor_; }
  /// In host byte order.
  std::uint16_t port() const noexcept;

 private:
  int descriptor_;
};

}  // namespace sluice::tcp_clients
