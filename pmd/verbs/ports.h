// SPDX-License-Identifier: Apache-2.0
//
// Queries of the kernel's RDMA devices and ports. Setup and administration only: makes system calls and
// allocates. Any thread.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "dataplane/base/net_address.h"

namespace sluice::rdma::verbs {

/// MTU in bytes of payload.
std::uint16_t bytes_of(ibv_mtu mtu) noexcept;

/// The GID table of all ports.
std::vector<ibv_gid_entry> gids_of(ibv_context* context);
bool is_roce_v2(const ibv_gid_entry& entry, std::uint8_t port) noexcept;
PeerAddress address_of(const ibv_gid_entry& entry) noexcept;
/// The port's RoCEv2 addresses, routable ones first, since peers may be on other networks.
std::vector<PeerAddress> addresses_of(std::span<const ibv_gid_entry> gids, std::uint8_t port);

/// Whether the device has type 2 memory windows, which the requester needs.
bool has_windows(const ibv_device_attr& attributes) noexcept;
/// Whether the device supports Send with Invalidate.
bool has_remote_invalidation(const ibv_device_attr& attributes) noexcept;
/// Whether it is a kernel device without hardware, like rxe.
/// Below zero: unknown, or the machine has one.
int numa_node_of(const ibv_device& device);
bool is_software(const ibv_device& device);

/// Why Sluice cannot use a port, and what to do about it; empty: it can.
std::string problem_of(const ibv_port_attr& port, bool has_address);
bool usable(ibv_context* context, std::uint8_t port);

/// Opens the device of this name or, if it is empty, the first one with a usable port. The caller closes it.
/// Null: there is none; no_such_device() returns the error message.
ibv_context* open_by_name(const std::string& wanted, std::uint8_t port);
std::string no_such_device(const std::string& wanted);

}  // namespace sluice::rdma::verbs
