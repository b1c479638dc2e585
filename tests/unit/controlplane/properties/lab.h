// SPDX-License-Identifier: Apache-2.0
//
// What tests of host authentication share.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "controlplane/properties/psk.h"

namespace sluice::properties {

using Octets = std::vector<std::byte>;

inline PskIdentity identity(const std::string& name,
                            const std::string& key = "a key of sixteen bytes or more") {
  const auto bytes = std::as_bytes(std::span(key));
  return {name, {bytes.begin(), bytes.end()}};
}

}  // namespace sluice::properties
