// SPDX-License-Identifier: Apache-2.0
//
// 'sluicectl exports' and 'sluicectl export-stats'. Reads the segment. Any thread.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "dataplane/segment/segment.h"

namespace sluice::admin {

/// Use and totals of each export that the data plane serves.
nlohmann::json exports(const segment::Layout& layout);
/// Calls and errors by procedure, for procedures that were called at least once.
/// `path` empty: of every export.
nlohmann::json export_statistics(const segment::Layout& layout, const std::string& path);

}  // namespace sluice::admin
