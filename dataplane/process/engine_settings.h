// SPDX-License-Identifier: Apache-2.0
//
// Sizes of the pools of an engine and of the memory exports, as the published configuration has them. Pure functions; any thread, setup.
#pragma once

#include <cstdint>

#include "dataplane/rpcrdma/engine.h"
#include "dataplane/segment/config_block.h"

namespace sluice::process {

rpcrdma::Version2Config version_2_config(const segment::ConfigBlock& config);
rpcrdma::EngineConfig engine_config(const segment::ConfigBlock& config);
/// Returns whether files in memory are served: not by the reverse gateway, nor where NFS 3 goes to an upstream.
bool serves_memory(const segment::ConfigBlock& config);
/// Returns the bytes that are reserved for the memory exports; a minimum when no program serves them.
std::uint64_t export_bytes(const segment::ConfigBlock& config);

}  // namespace sluice::process
