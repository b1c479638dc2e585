// SPDX-License-Identifier: Apache-2.0
//
// Methods that change something: reload, log level, exports, connections, drain. The control plane's thread.
#pragma once

#include "controlplane/admin/operations.h"
#include "controlplane/admin/registry.h"
#include "controlplane/config/config.h"
#include "dataplane/segment/segment.h"

namespace sluice::admin {

/// Adds the methods. `operations`, `layout` and `config` outlive the registry.
void add_changes(Registry& registry, Operations& operations, const segment::Layout& layout,
                 const config::Config& config);

}  // namespace sluice::admin
