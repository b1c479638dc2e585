// SPDX-License-Identifier: Apache-2.0
//
// The device of a tool, and its connection management. Used at setup and on the thread that polls the device.
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
  std::string fabric = "/dev/shm/sluice-loopback";  ///< loopback: fabric of the server
  // Options of softroce.
  std::string ethdev;              ///< DPDK vdev with its arguments, or PCI address
  std::string address;             ///< our own address, with prefix length
  std::string server;              ///< address of the server; also for verbs
  std::string rdma_device;         ///< verbs: such as "mlx5_0"; empty selects the first usable device
  bool no_memory_windows = false;  ///< verbs: a region is registered for each segment instead
  std::uint16_t mtu = 4200;
  std::uint32_t dpdk_memory_mib = 192;
  int cpu = -1;  ///< CPU to run on; -1 selects the first that this process may use
};

/// The device with the objects that it depends on, in order of construction.
struct ToolDevice {
  Owned<rdma::softroce::Port> port;  ///< null unless the driver is softroce
  std::unique_ptr<rdma::Device> device;
  std::unique_ptr<rdma::ConnectionManager> own_manager;

  rdma::ConnectionManager& manager() { return own_manager ? *own_manager : *device->connection_manager(); }
};

/// Pins this thread to its CPU and opens the device. Throws SetupError.
ToolDevice open_device(const DeviceOptions& options);

}  // namespace sluice::bench
