// SPDX-License-Identifier: Apache-2.0
//
// What the kernel's RDMA devices and their ports are like. Setup and administration: everything here makes
// system calls and allocates. Any thread.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "dataplane/base/net_address.h"

namespace sluice::rdma::verbs {

/// Bytes of payload.
std::uint16_t bytes_of(ibv_mtu mtu) noexcept;

/// The GID table of all ports.
std::vector<ibv_gid_entry> gids_of(ibv_context* context);
bool is_roce_v2(const ibv_gid_entry& entry, std::uint8_t port) noexcept;
PeerAddress address_of(const ibv_gid_entry& entry) noexcept;
/// The port's RoCEv2 addresses, routable ones first: what a peer that may be anywhere should be told.
std::vector<PeerAddress> addresses_of(std::span<const ibv_gid_entry> gids, std::uint8_t port);

/// Type 2 memory windows, which the requester needs.
bool has_windows(const ibv_device_attr& attributes) noexcept;
/// Send with Invalidate.
bool has_remote_invalidation(const ibv_device_attr& attributes) noexcept;
/// rxe and its like: a device of the kernel's without hardware.
bool is_software(const ibv_device& device);

/// Why Sluice cannot use a port, as a sentence that says what to do; empty: it can.
std::string problem_of(const ibv_port_attr& port, bool has_address);
bool usable(ibv_context* context, std::uint8_t port);

/// The device of this name, or the first whose port is usable when the name is empty. The caller closes it.
/// Null: there is none, and no_such_device() says so.
ibv_context* open_by_name(const std::string& wanted, std::uint8_t port);
std::string no_such_device(const std::string& wanted);

}  // namespace sluice::rdma::verbs
