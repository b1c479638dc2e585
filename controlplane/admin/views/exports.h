// SPDX-License-Identifier: Apache-2.0
//
// 'sluicectl exports' and 'sluicectl export-stats'. Reads the segment. Any thread.
#pragma once

#include <string>

#include "controlplane/json/json.h"
#include "dataplane/segment/segment.h"

namespace sluice::admin {

/// Returns use and totals of each export that the data plane serves.
Json exports(const segment::Layout& layout);
/// Returns calls and errors by procedure, for procedures that were called at least once. Covers the export
/// `path`, or every export if `path` is empty.
Json export_statistics(const segment::Layout& layout, const std::string& path);

}  // namespace sluice::admin
