// SPDX-License-Identifier: Apache-2.0
//
// Sockets towards upstream servers. Any thread.
#pragma once

#include <sys/socket.h>

#include <cstdint>

#include "pmd/rdma.h"

namespace sluice::forward {

/// A TCP socket to connect with, blocking, with the options that upstream connections have: no delay, and the
/// loss of a silent peer noticed in `peer_timeout_ms`. With `privileged`, bound to a port below 1024.
/// Negative: minus errno.
int connecting_socket(int family, bool privileged, unsigned peer_timeout_ms) noexcept;

/// Fills `address`, of the family that the address is of; returns its size.
socklen_t socket_address(const rdma::PeerAddress& host, std::uint16_t port,
                         sockaddr_storage& address) noexcept;

}  // namespace sluice::forward
