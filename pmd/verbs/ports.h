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
#include "pmd/verbs/provider.h"

namespace sluice::rdma::verbs {

/// Returns the MTU in bytes of payload.
std::uint16_t bytes_of(ibv_mtu mtu) noexcept;

/// Returns the GID table of all ports.
std::vector<ibv_gid_entry> gids_of(ibv_context* context);
/// Returns true if the entry is a RoCEv2 GID of the port with an index that a queue pair can have.
bool is_usable_gid(const ibv_gid_entry& entry, std::uint8_t port) noexcept;
PeerAddress address_of(const ibv_gid_entry& entry) noexcept;
/// Returns the port's usable RoCEv2 addresses, routable ones first, because peers may be on other networks.
std::vector<PeerAddress> addresses_of(std::span<const ibv_gid_entry> gids, std::uint8_t port);

/// Features of a device, probed on one of its ports (probe.h). The device's flags decide about a feature that
/// could not be probed.
struct Capabilities {
  bool windows = false;              ///< type 2 memory windows, which the requester needs
  bool remote_invalidation = false;  ///< Send with Invalidate
  std::string summary;               ///< both, for the log
};
/// Setup. Takes at most 100 ms. Without a usable GID nothing is probed.
Capabilities capabilities_of(ibv_context* context, const ibv_device_attr& attributes, std::uint8_t number,
                             const ibv_port_attr& port, std::span<const ibv_gid_entry> gids);
/// Returns the NUMA node of the device; negative if unknown or if the machine has only one node.
int numa_node_of(const ibv_device& device);
/// Returns the row of the device in the table of providers.
const Provider& provider_of(const ibv_device& device);

/// Returns why Sluice cannot use a port, and the remedy. Empty if Sluice can use it.
std::string problem_of(const ibv_device& device, const ibv_port_attr& port, bool has_address);
bool usable(ibv_context* context, std::uint8_t port);

/// Opens the device of this name or, if the name is empty, the first device with a usable port. The caller
/// closes it. Returns null if there is none; no_such_device() returns the error message.
ibv_context* open_by_name(const std::string& wanted, std::uint8_t port);
std::string no_such_device(const std::string& wanted);

}  // namespace sluice::rdma::verbs
