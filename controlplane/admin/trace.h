// SPDX-License-Identifier: Apache-2.0
//
// Traces of the calls of one connection, with the time that each call spent in each state of its slot. The
// control plane's thread.
#pragma once

#include "controlplane/admin/operations.h"
#include "controlplane/admin/registry.h"
#include "controlplane/config/config.h"
#include "dataplane/segment/segment.h"

namespace sluice::admin {

/// Adds trace_start, trace_stop and trace_read. `operations`, `layout` and `config` outlive the registry.
void add_trace(Registry& registry, Operations& operations, const segment::Layout& layout,
               const config::Config& config);

}  // namespace sluice::admin
