// SPDX-License-Identifier: Apache-2.0
//
// Settings of the credit policy from the configuration. A value type: the keeper holds a copy, which a reload
// replaces.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "controlplane/policy/client_classes.h"
#include "controlplane/policy/credit_policy.h"

namespace sluice::policy {

/// Class of the connections of an authenticated host.
struct HostClass {
  std::string host;
  std::uint32_t client_class = 0;
};

struct CreditSettings {
  std::uint32_t reactors = 1;
  std::uint32_t connections = 0;  ///< entries in the connection table of one reactor
  std::uint32_t interval_ms = 0;  ///< interval between recomputations
  CreditLimits limits;
  std::vector<ClientClass> classes{1};  ///< the first class is "default"
  std::vector<HostClass> host_classes;  ///< authenticated hosts with a class, by name
};

}  // namespace sluice::policy
