// SPDX-License-Identifier: Apache-2.0
//
// A configuration as JSON, and the difference that a new one makes. Pure; any thread.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "controlplane/config/config.h"

namespace sluice::config {

/// Every key with its value, nested as in the file.
nlohmann::json describe(const Config& config);

struct Changes {
  std::vector<std::string> live;             ///< keys that take effect at once
  std::vector<std::string> restart_control;  ///< keys that need a restart of the control plane
  std::vector<std::string> restart_both;     ///< keys that need a restart of both planes
};

/// `places`: for upstreams, of the running data plane.
Changes compare(const Config& running, const Config& next, const segment::UpstreamPlaces& places = {});

/// `running` with those values of `next` that take effect without a restart.
Config live_part(const Config& running, const Config& next, const segment::UpstreamPlaces& places = {});

/// Gives each export of `block` the index that its path has in `before`: file handles contain it. Throws
/// ConfigError when no index is left.
void keep_places(const segment::ConfigBlock& before, segment::ConfigBlock& block);

/// Puts the upstreams that `before` has in the places that they had there, and the others in those that are left: their
/// counters go by index.
void keep_upstreams(const segment::ConfigBlock& before, segment::ConfigBlock& block);

/// The same for classes of clients, whose counters go by index. A class that is no longer configured keeps
/// its index while there is room, has no clients, and is not described.
void keep_classes(const segment::ConfigBlock& before, Config& config);

}  // namespace sluice::config
