// SPDX-License-Identifier: Apache-2.0
//
// TCP sockets configured for RPC. Any thread; the caller owns the returned descriptors. Errors are -errno.
#pragma once

#include <sys/socket.h>

#include <cstdint>

#include "dataplane/base/net_address.h"
#include "dataplane/base/socket_address.h"

namespace sluice::tcp {

/// A peer that acknowledges neither data nor keep-alive probes for this long is dead (TCP_USER_TIMEOUT).
inline constexpr unsigned kPeerTimeoutMs = 30'000;

/// Sets TCP_NODELAY, and detects a dead peer within `peer_timeout_ms`.
void tune(int socket, unsigned peer_timeout_ms) noexcept;

/// A tuned, blocking TCP socket to connect with. With `privileged`, bound to a port below 1024. `from`, if not null:
/// the address of this host that it is bound to. Negative: -errno.
int connecting_socket(int family, bool privileged, unsigned peer_timeout_ms,
                      const PeerAddress* from = nullptr) noexcept;
/// The same, bound to `port` in any case; zero: to one that is free, below 1024 with `privileged`. The port
/// stays ours while any such socket is open: the next one may be bound to it before the last is closed.
int bound_socket(int family, bool privileged, unsigned peer_timeout_ms, std::uint16_t port) noexcept;
/// Ends the connection for both sides at once: what the peer has not read is lost, and its port and ours can
/// be used for another one. The descriptor stays open.
void reset(int socket) noexcept;

using sluice::peer_address;
using sluice::socket_address;

/// Returns the port of a socket address, in host byte order.
std::uint16_t port_of(const sockaddr_storage& address) noexcept;
/// Ports below this one are privileged: on most systems they take rights to bind to.
inline constexpr std::uint16_t kPrivilegedPortsEnd = 1024;
/// Returns true if the port of a socket address is privileged.
inline bool has_privileged_port(const sockaddr_storage& address) noexcept {
  return port_of(address) < kPrivilegedPortsEnd;
}

/// A listening TCP socket. Negative: -errno.
int listening_socket(const sockaddr* address, socklen_t bytes) noexcept;
/// Address of a bound socket; zero if it has none.
PeerAddress local_address(int socket) noexcept;
/// Port of a bound socket, in host byte order.
std::uint16_t local_port(int socket) noexcept;

}  // namespace sluice::tcp
