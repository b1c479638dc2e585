// SPDX-License-Identifier: Apache-2.0
//
// [page] of the configuration: the status page. Setup; one thread.
#pragma once

#include "controlplane/config/checker.h"

namespace sluice::config {

/// An address that other hosts can reach is a defect unless it is allowed.
void read_page(Checker& check, const toml::table& root, Config& config);

}  // namespace sluice::config
