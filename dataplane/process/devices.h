// SPDX-License-Identifier: Apache-2.0
//
// The RDMA devices that a configuration names, one for each reactor. Setup.
#pragma once

#include <memory>
#include <vector>

#include "dataplane/segment/config_block.h"
#include "pmd/device.h"
#include "pmd/loopback/fabric.h"
#include "pmd/softroce/softroce.h"
#include "pmd/verbs/verbs.h"

namespace sluice::reactor {

/// DPDK starts with a virtual device, not with one on the PCI bus.
bool is_vdev(const segment::ConfigBlock& config);

/// What all reactors' devices stand on. It outlives them.
class Drivers {
 public:
  /// DPDK's environment is up. Throws SetupError.
  explicit Drivers(const segment::ConfigBlock& config);

  std::unique_ptr<rdma::Device> make_device(const segment::ConfigBlock& config, std::uint32_t reactor);
  /// The main thread, again and again while the devices live: what drivers look for besides their polling.
  void look();
  /// The main thread: whether the peer of a verbs queue pair is there. One that is not ends it.
  void probe(std::uint32_t reactor, std::uint32_t queue_pair);
  /// Null but for softroce.
  const std::shared_ptr<rdma::softroce::Port>& port() const { return port_; }

 private:
  std::shared_ptr<rdma::softroce::Port> port_;
  std::shared_ptr<rdma::loopback::Fabric> fabric_;
  std::vector<rdma::verbs::Verbs*> verbs_;
  std::vector<rdma::verbs::Condition> shown_;  ///< of each of these
};

}  // namespace sluice::reactor
