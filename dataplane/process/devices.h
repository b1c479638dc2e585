// SPDX-License-Identifier: Apache-2.0
//
// RDMA devices of a configuration, one per reactor. Used by the main thread.
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

/// Returns whether `ethdev` names a virtual device of DPDK; otherwise it is a PCI address.
bool is_vdev(const segment::ConfigBlock& config);
/// Returns the number of queue pairs of a reactor's device.
std::uint32_t queue_pairs_of_device(const segment::ConfigBlock& config);

/// Port or fabric that the devices of all reactors share. It outlives the devices.
class Devices final {
 public:
  /// Opens the port or the fabric at setup. Requires that DPDK's environment is initialized. Throws
  /// SetupError.
  explicit Devices(const segment::ConfigBlock& config);
  ~Devices();
  Devices(const Devices&) = delete;
  Devices& operator=(const Devices&) = delete;

  /// Creates the device of a reactor at setup. Throws SetupError. The devices outlive the last
  /// poll_conditions().
  std::unique_ptr<rdma::Device> make_device(const segment::ConfigBlock& config, std::uint32_t reactor);
  /// Does the drivers' work that is not part of a reactor's polling, and logs changes of a device's
  /// condition. Called periodically while the devices live.
  void poll_conditions();
  /// Returns the port of the softroce driver; null for other drivers.
  rdma::softroce::Port* port() const { return port_.get(); }

 private:
  void log_notices();
  std::unique_ptr<rdma::Device> open(const segment::ConfigBlock& config, std::uint32_t reactor);

  Owned<rdma::softroce::Port> port_;
  std::shared_ptr<rdma::loopback::Fabric> fabric_;
  bool in_place_ = false;  ///< Transmission::in_place of the port when it was last logged
  std::vector<rdma::Device*> made_;
  std::vector<rdma::Condition> logged_;  ///< condition of each device when it was last logged
};

}  // namespace sluice::process
