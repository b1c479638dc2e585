// SPDX-License-Identifier: Apache-2.0
//
// What 'sluicectl config' shows, checks and compares. The control plane's thread.
#pragma once

#include <string>

#include "controlplane/config/changes.h"
#include "controlplane/config/config.h"
#include "controlplane/json/json.h"

namespace sluice::admin {

/// Keys that a reload changed, by what puts them in force.
Json describe_changes(const config::Changes& changes);
/// The file `text` and what it would change of `running`, or its defects.
/// `name` is the name of the file in messages, `places` as config::compare() takes it.
Json check_configuration(const std::string& text, const std::string& name, const config::Config& running,
                         const segment::UpstreamPlaces& places);

}  // namespace sluice::admin
