// SPDX-License-Identifier: Apache-2.0
//
// A configuration as users see it, and what a new one changes.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "controlplane/config/config.h"

namespace sluice::config {

/// Every key with its value, named and nested as in the file.
nlohmann::json describe(const Config& config);

struct Changes {
  std::vector<std::string> live;             ///< keys that take effect at once
  std::vector<std::string> restart_control;  ///< keys that want the control plane started again
  std::vector<std::string> restart_both;     ///< keys that want both planes started again
};

Changes compare(const Config& running, const Config& next);

/// `next` as far as it can take effect while both planes run; the rest as in `running`.
Config live_part(const Config& running, const Config& next);

/// Places of exports: a path keeps the place that it has in `before`, since that is part of its handles.
/// Throws ConfigError when there is no place left.
void keep_places(const segment::ConfigBlock& before, segment::ConfigBlock& block);

/// The same for classes of clients, whose counters are kept by number: a class keeps the number that its name
/// has in `before`. One that is gone stays without clients; it is not described.
void keep_classes(const segment::ConfigBlock& before, Config& config);

}  // namespace sluice::config
