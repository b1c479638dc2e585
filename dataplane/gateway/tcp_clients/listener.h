// SPDX-License-Identifier: Apache-2.0
//
// The socket at which TCP clients arrive: one for all reactors. Each accepts while it has room, so that a client goes
// to a reactor that has. If none has, a reactor accepts that can make room, and otherwise the client waits in the
// kernel. Made and destroyed by the
// main thread; the descriptor may be used by any.
#pragma once

#include <sys/socket.h>

#include <atomic>
#include <cstdint>

namespace sluice::tcp_clients {

class Listener {
 public:
  /// Setup. Throws SetupError if it cannot listen there.
  Listener(const sockaddr_storage& address, socklen_t address_bytes);
  ~Listener();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  /// A reactor has, or no longer has, a place for a client. Any reactor may call.
  void note_room(bool has_room) noexcept {
    with_room_.fetch_add(has_room ? 1 : -1, std::memory_order_relaxed);
  }
  /// Returns true if some reactor has a place for a client.
  bool has_room() const noexcept { return with_room_.load(std::memory_order_relaxed) > 0; }

  int descriptor() const noexcept { return descriptor_; }
  /// Returns the port in host byte order.
  std::uint16_t port() const noexcept;

 private:
  int descriptor_;
  std::atomic<int> with_room_{0};  ///< reactors
};

}  // namespace sluice::tcp_clients
