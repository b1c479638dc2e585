// SPDX-License-Identifier: Apache-2.0
//
// Changes between two configurations: their differences, the part that takes effect without a restart, and
// the values and indices that do not change while a data plane runs. Pure functions; any thread.
#pragma once

#include <string>
#include <vector>

#include "controlplane/config/config.h"

namespace sluice::config {

struct Changes {
  std::vector<std::string> live;             ///< keys that take effect immediately
  std::vector<std::string> restart_control;  ///< keys that need a restart of the control plane
  std::vector<std::string> restart_both;     ///< keys that need a restart of both planes
};

/// Compares two configurations. `places` describes the upstream slots of the running data plane.
Changes compare(const Config& running, const Config& next, const segment::UpstreamPlaces& places = {});

/// Returns what a reload would remove or lift although its file does not mention it: the last export, all
/// upstreams, and limits and restrictions that the file of `running` names and the file of `next` does not.
/// Returns one line for each, or an empty string.
std::string unsaid_removals(const Config& running, const Config& next);

/// Returns `running` with the values of `next` that take effect without a restart.
Config live_part(const Config& running, const Config& next, const segment::UpstreamPlaces& places = {});

/// Configuration of a control plane that finds a running data plane. Values that the data plane applied at
/// its start stay in force, independent of the current content of the file.
struct BesideDataPlane {
  Config config;                   ///< `read`, except for values that only a start of the data plane applies
  std::vector<std::string> later;  ///< keys that differ and take effect at that start
};

/// Combines `read` with `started`, the configuration that the data plane was started with, including later
/// reloads. `places` describes the data plane's upstream slots.
BesideDataPlane beside_data_plane(const Config& read, const segment::ConfigBlock& started,
                                  const segment::UpstreamPlaces& places);

/// Gives each export of `block` the index that its path has in `before`, because file handles contain the
/// index. Throws ConfigError if no index is left.
void keep_places(const segment::ConfigBlock& before, segment::ConfigBlock& block);

/// Moves the upstreams that `before` has to their previous indices, and the others to the remaining ones,
/// because counters refer to the index.
void keep_upstreams(const segment::ConfigBlock& before, segment::ConfigBlock& block);

/// Keeps the indices of client classes, because counters refer to them. A class that is no longer configured
/// keeps its index while there are enough indices, has no clients, and is not described.
void keep_classes(const segment::ConfigBlock& before, Config& config);

}  // namespace sluice::config
