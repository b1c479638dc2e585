// SPDX-License-Identifier: Apache-2.0
//
// 'sluicectl devices'. Shows the counters of the devices that reactors poll, and the RDMA ports of this
// machine. Reads the segment and opens each RDMA device (system calls). The control plane's thread.
#pragma once

#include "controlplane/json/json.h"
#include "dataplane/segment/segment.h"

namespace sluice::admin {

Json devices(const segment::Layout& layout, const segment::ConfigBlock& block);

}  // namespace sluice::admin
