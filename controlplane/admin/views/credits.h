// SPDX-License-Identifier: Apache-2.0
//
// 'sluicectl credits'. Shows the credits that the policy grants, and how many of them are used. The control
// plane's thread.
#pragma once

#include <cstdint>
#include <vector>

#include "controlplane/admin/pace.h"
#include "controlplane/config/config.h"
#include "controlplane/json/json.h"
#include "controlplane/policy/credit_controller.h"
#include "dataplane/segment/segment.h"

namespace sluice::admin {

/// Sums of the credits of the clients' open connections, by reactor and by class of clients. The summation
/// takes several iterations of the loop.
class CreditSums {
 public:
  /// The referenced objects outlive this one. `now_ns` is a time of segment::monotonic_ns().
  CreditSums(const segment::Layout& layout, const config::Config& config,
             const policy::CreditController& keeper, std::uint64_t now_ns);

  /// Adds connections until all have been added or `pace` is spent. Returns true if all have been added.
  bool add(Pace& pace);
  /// Returns the sums with the policy's own statistics.
  Json result() const;

 private:
  struct Sums {
    std::uint64_t connections = 0, granted = 0, used = 0, idle = 0;
  };

  void add_connection(std::uint32_t reactor, std::uint32_t number);

  const segment::Layout& layout_;
  const config::Config& config_;
  const policy::CreditController& keeper_;
  const std::uint64_t now_ns_;
  std::vector<Sums> by_reactor_;
  std::vector<Sums> by_class_;
  std::uint32_t reactor_ = 0;  ///< position of the next connection to add, with number_
  std::uint32_t number_ = 0;
};

}  // namespace sluice::admin
