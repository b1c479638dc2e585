// SPDX-License-Identifier: Apache-2.0
//
// Recorded calls of a reactor, as shown by 'sluicectl trace' and 'sluicectl slow'. The control plane's
// thread.
#pragma once

#include "controlplane/json/json.h"
#include "dataplane/segment/calls.h"

namespace sluice::admin {

/// Returns XID, procedure, status and sizes of a call, and the microseconds that it spent in each state.
/// `table` has the names of procedures. Any content of `table` and `record` is valid input.
Json describe_call(const segment::CallTable& table, const segment::TraceRecord& record);

}  // namespace sluice::admin
