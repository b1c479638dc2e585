// SPDX-License-Identifier: Apache-2.0
//
// Sockets of a service on one port: TCP and optionally UDP, for IPv4 and IPv6. Used at setup;
// single-threaded.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace sluice::mount {

class Sockets {
 public:
  struct Socket {
    int fd = -1;
    int family = 0;
    bool tcp = false;
    const char* netid() const;
    /// Returns the universal address for all addresses of the family.
    std::string universal_address(std::uint16_t port) const;
  };

  enum class Transports : std::uint8_t { Tcp, TcpAndUdp };

  /// Binds non-blocking sockets to every address. Omits IPv6 if the kernel does not support it. Port zero
  /// selects any free port. Throws SetupError, with a message that begins with "Cannot serve `what`" and ends
  /// with `advice`.
  Sockets(std::uint16_t port, Transports transports, const std::string& what, const std::string& advice);
  ~Sockets();
  Sockets(const Sockets&) = delete;
  Sockets& operator=(const Sockets&) = delete;

  std::uint16_t port() const { return port_; }
  const std::vector<Socket>& all() const { return all_; }
  std::vector<int> listeners() const;

 private:
  int bind_all(std::uint16_t port, Transports transports);
  void close_all();

  std::vector<Socket> all_;
  std::uint16_t port_ = 0;
};

}  // namespace sluice::mount
