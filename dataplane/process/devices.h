// SPDX-License-Identifier: Apache-2.0
//
// The RDMA devices that a configuration names, one for each reactor. The main thread.
#pragma once

#include <memory>
#include <vector>

#include "dataplane/base/owned.h"
#include "dataplane/segment/config_block.h"
#include "pmd/device.h"

namespace sluice::rdma::loopback {
class Fabric;
}  // namespace sluice::rdma::loopback
namespace sluice::rdma::softroce {
class Port;
}  // namespace sluice::rdma::softroce

namespace sluice::process {

/// Whether `ethdev` names a virtual device of DPDK's; otherwise it is an address on the PCI bus.
bool is_vdev(const segment::ConfigBlock& config);

/// What the devices of all reactors share: port, fabric. It outlives them.
class Devices final {
 public:
  /// Setup; DPDK's environment is up. Throws SetupError.
  explicit Devices(const segment::ConfigBlock& config);
  ~Devices();
  Devices(const Devices&) = delete;
  Devices& operator=(const Devices&) = delete;

  /// Setup; throws SetupError. The devices outlive the last poll_conditions().
  std::unique_ptr<rdma::Device> make_device(const segment::ConfigBlock& config, std::uint32_t reactor);
  /// Again and again while the devices live: what drivers do beside their reactor's polling, and a log line
  /// when the condition of a device has changed.
  void poll_conditions();
  /// Null but for softroce.
  rdma::softroce::Port* port() const { return port_.get(); }

 private:
  void log_notices();
  std::unique_ptr<rdma::Device> open(const segment::ConfigBlock& config, std::uint32_t reactor);

  Owned<rdma::softroce::Port> port_;
  std::shared_ptr<rdma::loopback::Fabric> fabric_;
  bool in_place_ = false;  ///< the port's Transmission, as of its last log line
  std::vector<rdma::Device*> made_;
  std::vector<rdma::Condition> logged_;  ///< condition of each, as of its last log line
};

}  // namespace sluice::process
