// SPDX-License-Identifier: Apache-2.0
//
// Results as text for a terminal, or as JSON. Writes to standard output.
#pragma once

#include "controlplane/json/json.h"

namespace sluice::ctl {

/// Prints a list of objects as a table, and an object as lines of key and value; with `as_json`, any value as JSON.
void print(const Json& result, bool as_json);

}  // namespace sluice::ctl
