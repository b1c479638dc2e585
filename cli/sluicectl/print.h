// SPDX-License-Identifier: Apache-2.0

#include "controlplane/json/json.h"
//
// Results as text for a terminal, or as JSON. Writes to standard output.
#pragma once

namespace sluice::ctl {

/// A list of objects as a table, an object as lines of key and value.
void print(const Json& result, bool as_json);

}  // namespace sluice::ctl
