// SPDX-License-Identifier: Apache-2.0
//
// Sockets of a service on one port: TCP and optionally UDP, for IPv4 and IPv6. They pass calls to a
// handler. Single-threaded; the calls are handled on the service's thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "controlplane/onc_rpc/call_handler.h"
#include "dataplane/base/polled_service.h"

namespace sluice::onc_rpc {

/// The bound sockets of a service. Used at setup.
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

/// Maximum size of a reply. Clients that need a longer list use TCP.
inline constexpr std::size_t kMaxDatagramBytes = 8192;
/// Maximum size of a call. Longer calls are truncated and then fail to decode.
inline constexpr std::size_t kMaxDatagramCallBytes = 8192;
inline constexpr int kDatagramsPerTurn = 16;

/// Calls over UDP. A reply is sent from the address that the call was sent to.
class Datagrams {
 public:
  /// Serves `socket`, a bound, non-blocking socket of `family` that the caller keeps ownership of. `socket`
  /// and `handler` outlive this object.
  Datagrams(int socket, int family, CallHandler& handler);

  void prepare(PollSet& set) { place_ = set.add(socket_, POLLIN); }
  void poll(const PollSet& set, std::uint64_t now_ns);

 private:
  bool receive(std::uint64_t now_ns);

  const int socket_;
  CallHandler& handler_;
  std::size_t place_ = PollSet::kNowhere;
};

}  // namespace sluice::onc_rpc
