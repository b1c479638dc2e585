// SPDX-License-Identifier: Apache-2.0
//
// OpenRPC document of the admin interface, made from the declarations and served as "rpc.discover".
// Single-threaded.
#pragma once

#include <string>
#include <vector>

#include "controlplane/admin/registry.h"
#include "controlplane/json/json.h"

namespace sluice::admin {

/// Returns the document for `methods`.
Json open_rpc(const std::vector<Declaration>& methods, const std::string& version);

/// Adds "rpc.discover", which returns the document for all methods of `registry`.
void add_discovery(Registry& registry, const std::string& version);

}  // namespace sluice::admin
