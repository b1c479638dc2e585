// SPDX-License-Identifier: Apache-2.0
//
// TCP sockets as RPC uses them. Any thread.
#pragma once

#include <sys/socket.h>

#include <cstdint>

#include "dataplane/base/net_address.h"

namespace sluice::tcp {

/// A peer that takes neither bytes nor probes for so long is lost (TCP_USER_TIMEOUT, keep-alive).
inline constexpr unsigned kPeerTimeoutMs = 30'000;

/// No delay, and the loss of a silent peer noticed in `peer_timeout_ms`.
void tune(int socket, unsigned peer_timeout_ms) noexcept;

/// A tuned TCP socket to connect with, blocking. With `privileged`, bound to a port below 1024. Negative:
/// minus errno.
int connecting_socket(int family, bool privileged, unsigned peer_timeout_ms) noexcept;

/// Fills `address`, of the family that the address is of; returns its size.
socklen_t socket_address(const PeerAddress& host, std::uint16_t port, sockaddr_storage& address) noexcept;

/// The other way round, without the port.
PeerAddress peer_address(const sockaddr_storage& address) noexcept;

/// A TCP socket that listens there, as others of this program may (SO_REUSEPORT). Negative: minus errno.
int listening_socket(const sockaddr* address, socklen_t bytes) noexcept;
/// Of a bound socket, in host order.
std::uint16_t local_port(int socket) noexcept;

}  // namespace sluice::tcp
