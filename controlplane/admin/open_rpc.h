// SPDX-License-Identifier: Apache-2.0
//
// The declarations as an OpenRPC document, which clients can ask for. One thread.
#pragma once

#include <string>
#include <vector>

#include "controlplane/admin/registry.h"
#include "controlplane/json/json.h"

namespace sluice::admin {

Json open_rpc(const std::vector<Declaration>& methods, const std::string& version);

/// "rpc.discover": of all methods of the registry.
void add_discovery(Registry& registry, const std::string& version);

}  // namespace sluice::admin
