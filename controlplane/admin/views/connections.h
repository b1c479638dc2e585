// SPDX-License-Identifier: Apache-2.0
//
// 'sluicectl connections' and 'sluicectl properties'. Reads the segment. The control plane's thread, but for
// count_connections(): any.
#pragma once

#include <cstdint>
#include <string>

#include "controlplane/config/config.h"
#include "controlplane/json/json.h"
#include "dataplane/segment/segment.h"

namespace sluice::admin {

/// Which connections to list; an empty string matches every one.
struct ConnectionFilter {
  std::string peer;
  std::string client_class;
};

Json connections(const segment::Layout& layout, const config::Config& config, const ConnectionFilter& filter);
/// Everything about one connection. Throws MethodError when there is none of this number.
Json show_connection(const segment::Layout& layout, const config::Config& config, std::uint32_t reactor,
                     std::uint32_t number);
/// Transport properties of each version 2 connection, of both sides.
Json connection_properties(const segment::Layout& layout, const segment::ConfigBlock& config);
/// Connections of all reactors, as these count them.
std::uint32_t count_connections(const segment::Layout& layout, const segment::ConfigBlock& config);

}  // namespace sluice::admin
