// SPDX-License-Identifier: Apache-2.0
//
// The [reverse] table of the configuration: TCP clients whose calls go to an RPC-over-RDMA server.
// Setup; one thread.
#pragma once

#include "controlplane/json/json.h"
#include "dataplane/segment/config_block.h"

namespace sluice::config {

Json describe_reverse(const segment::ConfigBlock& block);
/// The server's MOUNT, in the form of an upstream.
segment::UpstreamConfig mount_of_server(const segment::ReverseConfig& reverse);

}  // namespace sluice::config
