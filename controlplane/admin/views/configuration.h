// SPDX-License-Identifier: Apache-2.0
//
// Checks and comparisons for 'sluicectl config'. The control plane's thread.
#pragma once

#include <string>

#include "controlplane/config/changes.h"
#include "controlplane/config/config.h"
#include "controlplane/json/json.h"

namespace sluice::admin {

/// Returns the changed keys, grouped by what puts them in force: the reload or a restart.
Json describe_changes(const config::Changes& changes);
/// Checks `text`, the content of a configuration file. Returns the changes relative to `running`, or the
/// defects. `name` is the file's name in messages. `places` is the parameter of config::compare().
Json check_configuration(const std::string& text, const std::string& name, const config::Config& running,
                         const segment::UpstreamPlaces& places);

}  // namespace sluice::admin
