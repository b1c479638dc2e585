// SPDX-License-Identifier: Apache-2.0
//
// Ethdevs whose link is the client itself. Pure functions; any thread.
#pragma once

#include <string_view>

#include "dataplane/segment/config_block.h"

namespace sluice::segment {

/// Returns whether the other end of the ethdev is a client's process or virtual machine. Such a link is down
/// before the client starts and after it has ended.
inline bool link_is_client(const ConfigBlock& config) noexcept {
  if (config.driver != Driver::SoftRoce) return false;
  const std::string_view ethdev = config.ethdev;
  return ethdev.starts_with("net_memif") || ethdev.starts_with("net_vhost");
}

}  // namespace sluice::segment
