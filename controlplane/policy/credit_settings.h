// SPDX-License-Identifier: Apache-2.0
//
// What the configuration sets of the credit policy.
// A value: the keeper has a copy, and gets another after a reload.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "controlplane/policy/client_classes.h"
#include "controlplane/policy/credit_policy.h"

namespace sluice::policy {

/// The class of an authenticated host's connections.
struct HostClass {
  std::string host;
  std::uint32_t client_class = 0;
};

struct CreditSettings {
  std::uint32_t reactors = 1;
  std::uint32_t connections = 0;  ///< entries in the connection table of one reactor
  std::uint32_t interval_ms = 0;  ///< between two recomputations
  CreditLimits limits;
  std::vector<ClientClass> classes{1};  ///< the first is "default"
  std::vector<HostClass> host_classes;  ///< of authenticated hosts that have one, by name
};

}  // namespace sluice::policy
