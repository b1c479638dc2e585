// SPDX-License-Identifier: Apache-2.0
//
// Sizes of an engine's pools and of the memory exports, derived from the published configuration. Pure
// functions; any thread, at setup.
#pragma once

#include <cstdint>

#include "dataplane/rpcrdma/engine.h"
#include "dataplane/segment/config_block.h"

namespace sluice::process {

rpcrdma::Version2Config version_2_config(const segment::ConfigBlock& config);
rpcrdma::EngineConfig engine_config(const segment::ConfigBlock& config);
/// Returns whether memory exports are served: not by the reverse gateway, and not if NFS 3 is forwarded to an
/// upstream.
bool serves_memory(const segment::ConfigBlock& config);
/// Returns the bytes reserved for the memory exports; a minimum if memory exports are not served.
std::uint64_t export_bytes(const segment::ConfigBlock& config);

}  // namespace sluice::process
