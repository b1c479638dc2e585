// SPDX-License-Identifier: Apache-2.0
//
// Classes of clients. A client belongs to the class with the longest matching prefix, or to class 0,
// "default", if no prefix matches. Pure functions; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "controlplane/policy/credit_policy.h"
#include "dataplane/segment/config_block.h"

namespace sluice::policy {

struct ClientClass {
  std::string name = "default";
  std::vector<segment::AllowedPrefix> clients{};
  ClassLimits credits;
  std::uint32_t max_connections_per_client = 16;
  bool gone = false;  ///< no longer configured; the class has no clients but keeps its number
};

inline std::uint32_t class_of(const std::vector<ClientClass>& classes, const PeerAddress& client) {
  std::uint32_t found = 0;
  std::uint32_t longest = 0;
  for (std::uint32_t i = 1; i < classes.size(); ++i)
    for (const segment::AllowedPrefix& prefix : classes[i].clients) {
      if (!client.within(prefix.address, prefix.prefix_bits) || prefix.prefix_bits < longest) continue;
      found = i;
      longest = prefix.prefix_bits;
    }
  return found;
}

}  // namespace sluice::policy
