// SPDX-License-Identifier: Apache-2.0
//
// Packet capture. The control plane passes the writing end of a client's pipe to the data plane, which writes
// the packets to it (segment/channels.h). The control plane's thread, which never blocks on either.
#pragma once

#include <string>

#include "controlplane/admin/registry.h"
#include "dataplane/segment/segment.h"

namespace sluice::admin {

/// Adds capture_start, capture_stop and capture_status. `layout` outlives the registry. `socket` is the path
/// of the socket on which the data plane receives capture requests.
void add_capture(Registry& registry, const segment::Layout& layout, const std::string& socket);

}  // namespace sluice::admin
