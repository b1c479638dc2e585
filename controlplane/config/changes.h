// SPDX-License-Identifier: Apache-2.0
//
// Difference between two configurations, and the part of it that takes effect without a restart. Pure
// functions; any thread.
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

}  // namespace sluice::config
