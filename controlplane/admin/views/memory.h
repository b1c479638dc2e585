// SPDX-License-Identifier: Apache-2.0
//
// 'sluicectl memory'. Reads the segment and /proc. The control plane's thread.
#pragma once

#include "controlplane/json/json.h"
#include "dataplane/segment/segment.h"

namespace sluice::admin {

/// Returns the resident bytes of the data plane's process, its reserved bytes by purpose, the use of the
/// buffers that connections share, and the connections that hold most of them.
Json memory(const segment::Layout& layout, const segment::ConfigBlock& config);

}  // namespace sluice::admin
