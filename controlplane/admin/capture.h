// SPDX-License-Identifier: Apache-2.0
//
// Packet capture: the writing end of a client's pipe is passed on to the data plane, which writes to it
// (segment/capture_channel.h). The control plane's thread; it waits for neither.
#pragma once

#include <string>

#include "controlplane/admin/registry.h"
#include "dataplane/segment/segment.h"

namespace sluice::admin {

/// capture_start, capture_stop, capture_status. `layout` outlives the registry; `socket` is where the data plane takes
/// requests.
void add_capture(Registry& registry, const segment::Layout& layout, const std::string& socket);

}  // namespace sluice::admin
