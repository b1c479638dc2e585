// SPDX-License-Identifier: Apache-2.0
//
// The [[upstream]] tables of the configuration.
#pragma once

#include <nlohmann/json.hpp>

#include "controlplane/config/checker.h"
#include "dataplane/segment/config_block.h"

namespace sluice::config {

/// Reads them into the block; defects go to `check`.
void read_upstreams(Checker& check, const toml::table& root, segment::ConfigBlock& block);
/// Null: the data plane serves it, or nobody.
const segment::UpstreamConfig* upstream_of(const segment::ConfigBlock& block,
                                           const segment::RouteConfig& route);
/// Whether NFS version 3 is that of the exports in memory.
bool serves_exports(const segment::ConfigBlock& block);
/// The same, were it not for the reverse gateway.
bool serves_exports_beside_upstreams(const segment::ConfigBlock& block);
nlohmann::json describe_upstreams(const segment::ConfigBlock& block);

}  // namespace sluice::config
