// SPDX-License-Identifier: Apache-2.0
//
// Results as text for a terminal, or as JSON. Writes to standard output.
#pragma once

#include <nlohmann/json.hpp>

namespace sluice::ctl {

/// A list of objects as a table, an object as lines of key and value.
void print(const nlohmann::json& result, bool as_json);

}  // namespace sluice::ctl
