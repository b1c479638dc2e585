// SPDX-License-Identifier: Apache-2.0
//
// Flow rules by which a network card delivers a RoCE packet to the hardware queue of the lane that owns its
// queue pair. The low bits of the destination QP identify the lane (InfiniBand Architecture Specification
// volume 1, 9.2, Base Transport Header). Drivers of cards that cannot match these bits reject the rules.
// Packets are then spread by RSS, and lanes hand over packets of other lanes. The same applies to management
// datagrams, because their queue pair number has the low bits of another lane.
// Setup, by the thread that creates the port.
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

  /// Creates a rule for each of the first `queues` lanes of a started ethdev and for each family of the
  /// port's addresses. Creates either all rules or none.
  void make(const PortConfig& config, std::uint32_t queues);
  /// Removes the rules. Call before the ethdev is stopped.
  void remove() noexcept;
  /// Returns the number of rules, or the reason why there is none.
  const Steering& steering() const noexcept { return steering_; }

 private:
  bool make_one(const PortConfig& config, bool v6, std::uint32_t lane);

  std::uint16_t ethdev_ = 0;
  std::vector<rte_flow*> made_;
  Steering steering_;
};

}  // namespace sluice::rdma::softroce
