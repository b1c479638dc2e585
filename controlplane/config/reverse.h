// SPDX-License-Identifier: Apache-2.0
//
// The [reverse] table of the configuration, for TCP clients whose calls are forwarded to an RPC-over-RDMA
// server. Used at setup; single-threaded.
#pragma once

#include "dataplane/segment/config_block.h"

namespace sluice::config {

/// Returns the server's MOUNT service in the form of an upstream.
segment::UpstreamConfig mount_of_server(const segment::ReverseConfig& reverse);

}  // namespace sluice::config
