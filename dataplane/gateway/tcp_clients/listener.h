// SPDX-License-Identifier: Apache-2.0
//
// The listening socket for TCP clients, shared by all reactors. A reactor accepts while it has a free place,
// so a client reaches a reactor with room. If no reactor has room, a reactor that can evict a client accepts.
// Otherwise the client waits in the kernel. The main thread creates and destroys the listener; any thread may
// use the descriptor.
#pragma once

#include <sys/socket.h>

#include <atomic>
#include <cstdint>

namespace sluice::tcp_clients {

class Listener {
 public:
  /// Setup. Throws SetupError if the socket cannot listen on the address.
  Listener(const sockaddr_storage& address, socklen_t address_bytes);
  ~Listener();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  /// Records that the calling reactor has a free place again, or has none left. Any reactor may call.
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
  std::atomic<int> with_room_{0};  ///< number of reactors with a free place
};

}  // namespace sluice::tcp_clients
