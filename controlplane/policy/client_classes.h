// SPDX-License-Identifier: Apache-2.0
//
// Classes of clients. A client is in the class with the longest matching prefix; class 0, "default", has
// those that match none. Pure; any thread.
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
  bool gone = false;  ///< no longer configured; has no clients, and keeps its number
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
