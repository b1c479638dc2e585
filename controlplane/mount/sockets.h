// SPDX-License-Identifier: Apache-2.0
//
// Sockets of the MOUNT service: TCP and UDP of IPv4 and IPv6, on one port. Setup; one thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dataplane/base/setup_error.h"

namespace sluice::mount {

class Sockets {
 public:
  struct Socket {
    int fd = -1;
    int family = 0;
    bool tcp = false;
    const char* netid() const;
    /// Universal address of all addresses of the family.
    std::string universal_address(std::uint16_t port) const;
  };

  /// Bound to every address, and non-blocking. IPv6 is left out where the kernel has none. Port zero: any that
  /// is free. Throws SetupError.
  explicit Sockets(std::uint16_t port);
  ~Sockets();
  Sockets(const Sockets&) = delete;
  Sockets& operator=(const Sockets&) = delete;

  std::uint16_t port() const { return port_; }
  const std::vector<Socket>& all() const { return all_; }
  std::vector<int> listeners() const;

 private:
  int bind_all(std::uint16_t port);
  void close_all();

  std::vector<Socket> all_;
  std::uint16_t port_ = 0;
};

}  // namespace sluice::mount
