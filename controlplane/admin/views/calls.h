// SPDX-License-Identifier: Apache-2.0
//
// Calls that a reactor has recorded, as 'sluicectl trace' and 'sluicectl slow' show them. The control plane's thread.
#pragma once

#include "controlplane/json/json.h"
#include "dataplane/segment/call_table.h"
#include "dataplane/segment/trace.h"

namespace sluice::admin {

/// XID, procedure, status, bytes, and the microseconds that it was in each state. `table` has the names of procedures. Any
/// content of either is valid input.
Json describe_call(const segment::CallTable& table, const segment::TraceRecord& record);

}  // namespace sluice::admin
