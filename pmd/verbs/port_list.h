// SPDX-License-Identifier: Apache-2.0
//
// The RDMA ports of this machine, for administrators. Any thread of either plane; makes system calls and
// allocates.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dataplane/base/net_address.h"

namespace sluice::rdma::verbs {

/// A port, whether usable or not.
struct PortInfo {
  std::string device;
  std::string provider;  ///< kernel driver
  std::string firmware;
  std::uint8_t port = 1;
  bool active = false;
  bool ethernet = false;
  std::uint32_t active_mtu = 0;        ///< bytes
  std::uint32_t speed_mbps = 0;        ///< Mbit/s; zero if unknown
  std::vector<PeerAddress> addresses;  ///< usable RoCEv2 GIDs, in table order
  std::uint32_t max_queue_pairs = 0;
  std::uint32_t max_work_requests = 0;  ///< per send or receive queue
  std::uint32_t max_sge = 0;
  std::uint32_t max_completions = 0;  ///< per completion queue
  std::uint32_t max_reads = 0;        ///< outstanding per queue pair
  std::uint64_t max_region_bytes = 0;
  std::uint32_t max_windows = 0;
  // Probed; false if Sluice cannot use the port.
  bool windows = false;              ///< type 2 windows, which the requester side needs
  bool remote_invalidation = false;  ///< Send with Invalidate
  std::string problem;               ///< reason why Sluice cannot use the port; empty if it can
};

/// Returns every port of every device; empty if there is none.
std::vector<PortInfo> list_ports();
/// Returns the message for a machine without RDMA ports.
std::string no_devices_hint();

}  // namespace sluice::rdma::verbs
