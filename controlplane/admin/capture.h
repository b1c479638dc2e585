// SPDX-License-Identifier: Apache-2.0
//
// Packet capture: a request to the data plane in the segment, and what came of it.
// The control plane's thread.
#pragma once

#include "controlplane/admin/registry.h"
#include "dataplane/segment/segment.h"

namespace sluice::admin {

/// capture_start, capture_stop, capture_status. `layout` outlives the registry.
void add_capture(Registry& registry, segment::Layout& layout);

}  // namespace sluice::admin
