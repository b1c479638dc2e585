// SPDX-License-Identifier: Apache-2.0
//
// Indices that must stay stable across changes of the configuration, because file handles and counters refer
// to them. Pure functions; any thread.
#pragma once

#include "controlplane/config/config.h"

namespace sluice::config {

/// Gives each export of `block` the index that its path has in `before`, because file handles contain the
/// index. Throws ConfigError if no index is left.
void keep_places(const segment::ConfigBlock& before, segment::ConfigBlock& block);

/// Moves the upstreams that `before` has to their previous indices, and the others to the remaining ones,
/// because counters refer to the index.
void keep_upstreams(const segment::ConfigBlock& before, segment::ConfigBlock& block);

/// Keeps the indices of client classes, because counters refer to them. A class that is no longer configured
/// keeps its index while there are enough indices, has no clients, and is not described.
void keep_classes(const segment::ConfigBlock& before, Config& config);

}  // namespace sluice::config
