// SPDX-License-Identifier: Apache-2.0
//
// Indices that must outlive a change of the configuration: file handles and counters go by them. Pure; any thread.
#pragma once

#include "controlplane/config/config.h"

namespace sluice::config {

/// Gives each export of `block` the index that its path has in `before`: file handles contain it. Throws
/// ConfigError when no index is left.
void keep_places(const segment::ConfigBlock& before, segment::ConfigBlock& block);

/// Puts the upstreams that `before` has in the places that they had there, and the others in those that are left: their
/// counters go by index.
void keep_upstreams(const segment::ConfigBlock& before, segment::ConfigBlock& block);

/// The same for classes of clients, whose counters go by index. A class that is no longer configured keeps
/// its index while there is room, has no clients, and is not described.
void keep_classes(const segment::ConfigBlock& before, Config& config);

}  // namespace sluice::config
