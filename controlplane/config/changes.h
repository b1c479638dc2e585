// SPDX-License-Identifier: Apache-2.0
//
// The difference that a new configuration makes, and what of it takes effect at once. Pure; any thread.
#pragma once

#include <string>
#include <vector>

#include "controlplane/config/config.h"

namespace sluice::config {

struct Changes {
  std::vector<std::string> live;             ///< keys that take effect at once
  std::vector<std::string> restart_control;  ///< keys that need a restart of the control plane
  std::vector<std::string> restart_both;     ///< keys that need a restart of both planes
};

/// `places`: for upstreams, of the running data plane.
Changes compare(const Config& running, const Config& next, const segment::UpstreamPlaces& places = {});

/// Returns what a reload would take away or open without a word in its file: the last export, all upstreams, limits and
/// restrictions that the file of `running` names and that of `next` does not. A line for each; empty: nothing.
std::string unsaid_removals(const Config& running, const Config& next);

/// `running` with those values of `next` that take effect without a restart.
Config live_part(const Config& running, const Config& next, const segment::UpstreamPlaces& places = {});

}  // namespace sluice::config
