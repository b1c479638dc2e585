// SPDX-License-Identifier: Apache-2.0
//
// TCP sockets configured for RPC. Any thread; the caller owns the returned descriptors. Errors are -errno.
#pragma once

#include <sys/socket.h>

#include <cstdint>

#include "dataplane/base/net_address.h"
#include "dataplane/base/sockets.h"

namespace sluice::tcp {

/// Timeout after which a peer that acknowledges neither data nor keep-alive probes is dead
/// (TCP_USER_TIMEOUT).
inline constexpr unsigned kPeerTimeoutMs = 30'000;

/// Sets TCP_NODELAY, and enables detection of a dead peer within `peer_timeout_ms`.
void tune(int socket, unsigned peer_timeout_ms) noexcept;

/// Returns a tuned, blocking TCP socket for an outgoing connection, or -errno. With `privileged`, binds it to
/// a port below 1024. If `from` is not null, binds it to that address of this host.
int connecting_socket(int family, bool privileged, unsigned peer_timeout_ms,
                      const PeerAddress* from = nullptr) noexcept;
/// Returns a socket for an outgoing connection that is bound to `port`, or -errno. If `port` is zero, binds
/// it to a free port, which is below 1024 with `privileged`. The port stays reserved while any socket that is
/// bound to it by this function is open, and a new socket may be bound to it before the previous one is
/// closed.
int bound_socket(int family, bool privileged, unsigned peer_timeout_ms, std::uint16_t port) noexcept;
/// Resets the connection. Data that the peer has not read is lost, and the ports of both sides can be used
/// for another connection. The descriptor stays open.
void reset(int socket) noexcept;

using sluice::peer_address;
using sluice::socket_address;

/// Returns the port of a socket address, in host byte order.
std::uint16_t port_of(const sockaddr_storage& address) noexcept;
/// First port that is not privileged. On most systems, binding to a lower port requires a privilege.
inline constexpr std::uint16_t kPrivilegedPortsEnd = 1024;
/// Returns true if the port of a socket address is privileged.
inline bool has_privileged_port(const sockaddr_storage& address) noexcept {
  return port_of(address) < kPrivilegedPortsEnd;
}

/// Returns a listening TCP socket, or -errno.
int listening_socket(const sockaddr* address, socklen_t bytes) noexcept;
/// Returns the address of a bound socket, or zero if it has none.
PeerAddress local_address(int socket) noexcept;
/// Returns the port of a bound socket, in host byte order.
std::uint16_t local_port(int socket) noexcept;

}  // namespace sluice::tcp
