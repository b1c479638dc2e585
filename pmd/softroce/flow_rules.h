// SPDX-License-Identifier: Apache-2.0
//
// Rules by which a network card brings a RoCE packet to the hardware queue of the lane that owns its queue pair, which the low
// bits of the destination QP say (InfiniBand Architecture Specification volume 1, 9.2, Base Transport Header). Drivers of
// cards that cannot look there refuse them: packets are then spread by RSS, and lanes hand over what is not theirs, as with
// management datagrams, whose queue pair has the low bits of another lane.
// Setup, by the thread that makes the port.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "pmd/softroce/port_config.h"

struct rte_flow;

namespace sluice::rdma::softroce {

class FlowRules {
 public:
  FlowRules() = default;
  ~FlowRules() { remove(); }
  FlowRules(const FlowRules&) = delete;
  FlowRules& operator=(const FlowRules&) = delete;

  /// For the first `queues` lanes of a started ethdev, one for each family of the port's addresses. All of them are made, or none.
  void make(const PortConfig& config, std::uint32_t queues);
  /// Before the ethdev is stopped.
  void remove() noexcept;
  /// How many there are, and why there is none.
  const Steering& steering() const noexcept { return steering_; }

 private:
  bool make_one(const PortConfig& config, bool v6, std::uint32_t lane);

  std::uint16_t ethdev_ = 0;
  std::vector<rte_flow*> made_;
  Steering steering_;
};

}  // namespace sluice::rdma::softroce
