// SPDX-License-Identifier: Apache-2.0
//
// The methods that show the segment and the configuration in force. The control plane's thread.
#pragma once

#include "controlplane/admin/registry.h"
#include "controlplane/config/config.h"
#include "dataplane/segment/segment.h"

namespace sluice::admin {

/// `layout` and `config` outlive the registry.
void add_segment_views(Registry& registry, const segment::Layout& layout, const config::Config& config);

}  // namespace sluice::admin
