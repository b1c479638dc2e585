// SPDX-License-Identifier: Apache-2.0
//
// A JSON document for bug reports with everything that the control plane shows.
#pragma once

#include <string>

#include "cli/sluicectl/client.h"

namespace sluice::ctl {

/// Queries each view that changes nothing. A view that fails is present with its error, as {"error": ...}.
/// The document contains no secrets: of keys it has only the configured path. Throws Unreachable and
/// Forbidden.
Json debug_dump(const Client& client);

/// Creates the file with access for its owner only, because it contains addresses of clients. Throws if the
/// file exists.
void write_new_file(const std::string& path, const std::string& text);

}  // namespace sluice::ctl
