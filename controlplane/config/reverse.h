// SPDX-License-Identifier: Apache-2.0
//
// The [reverse] table of the configuration: TCP clients whose calls go to an RPC-over-RDMA server.
// Setup; one thread.
#pragma once

#include "controlplane/config/checker.h"
#include "controlplane/json/json.h"
#include "dataplane/segment/config_block.h"

namespace sluice::config {

/// Call after device, exports and upstreams have been read. Defects go to `check`.
void read_reverse(Checker& check, const toml::table& root, segment::ConfigBlock& block);
Json describe_reverse(const segment::ConfigBlock& block);
/// The server's MOUNT, in the form of an upstream.
segment::UpstreamConfig mount_of_server(const segment::ReverseConfig& reverse);

}  // namespace sluice::config
