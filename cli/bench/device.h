// SPDX-License-Identifier: Apache-2.0
//
// The device of a tool, and connection management for it. Setup; the thread that polls.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "dataplane/base/owned.h"
#include "pmd/device.h"
#include "pmd/softroce/softroce.h"

namespace sluice::bench {

struct DeviceOptions {
  std::string driver = "loopback";
  std::string fabric = "/dev/shm/sluice-loopback";  ///< loopback: the server's
  // softroce:
  std::string ethdev;       ///< DPDK vdev with its arguments, or PCI address
  std::string address;      ///< our own, with prefix length
  std::string server;       ///< the server's; verbs too
  std::string rdma_device;  ///< verbs: such as "mlx5_0"; empty: the first that can be used
  std::uint16_t mtu = 4200;
  std::uint32_t dpdk_memory_mib = 192;
  int cpu = -1;  ///< to run on; -1: the first that this process may use
};

/// The device and what it needs, in order of construction.
struct ToolDevice {
  Owned<rdma::softroce::Port> port;  ///< null: not on softroce
  std::unique_ptr<rdma::Device> device;
  std::unique_ptr<rdma::ConnectionManager> own_manager;

  rdma::ConnectionManager& manager() { return own_manager ? *own_manager : *device->connection_manager(); }
};

/// Moves this thread to its processor and opens the device. Throws SetupError.
ToolDevice open_device(const DeviceOptions& options);

}  // namespace sluice::bench
