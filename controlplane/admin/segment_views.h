// SPDX-License-Identifier: Apache-2.0
//
// Methods that show the segment and the configuration in force. The control plane's thread.
#pragma once

#include "controlplane/admin/pace.h"
#include "controlplane/admin/paced_work.h"
#include "controlplane/admin/registry.h"
#include "controlplane/config/config.h"
#include "dataplane/segment/segment.h"

namespace sluice::admin {

/// Limits of the work that views of connections do in one iteration of the control loop.
struct ViewLimits {
  Pace& pace;       ///< budget for requests that are answered in the same iteration
  PacedWork& work;  ///< requests that take several iterations
};

/// Adds the methods. `layout`, `config` and the members of `limits` outlive the registry.
void add_segment_views(Registry& registry, const segment::Layout& layout, const config::Config& config,
                       const ViewLimits& limits);

}  // namespace sluice::admin
