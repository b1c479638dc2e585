// SPDX-License-Identifier: Apache-2.0
//
// Everything that the control plane shows, in one JSON document for a bug report.
#pragma once

#include <string>

#include "cli/sluicectl/client.h"

namespace sluice::ctl {

/// Asks each view that changes nothing. A view that fails has its sentence in the document, as
/// {"error": ...}. Secrets are not in it: of keys the configuration has the path only. Throws Unreachable and
/// Forbidden.
Json debug_dump(const Client& client);

/// Creates the file for its owner alone, since addresses of clients are in it. Throws when it exists.
void write_new_file(const std::string& path, const std::string& text);

}  // namespace sluice::ctl
