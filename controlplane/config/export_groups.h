// SPDX-License-Identifier: Apache-2.0
//
// The keys `exports` and `prefix` of the [[upstream]] tables, which allow several upstreams for NFS version
// 3, each with its own exports. Used at setup; single-threaded.
#pragma once

#include <string_view>
#include <vector>

#include "dataplane/segment/config_block.h"

namespace sluice::config {

/// Returns the upstream with this name, as a pointer into `block`, or null.
const segment::UpstreamConfig* upstream_named(const segment::ConfigBlock& block, std::string_view name);
/// Returns true if the export keys of the upstream can change while the data plane runs. This requires that
/// both configurations have the same handle tag.
bool changes_live(const segment::UpstreamConfig& running, const segment::UpstreamConfig& next);
/// Returns true if the upstream serves only its own exports. A reload can add and remove such upstreams.
bool serves_only_exports(const segment::UpstreamConfig& upstream);
/// An upstream that a running data plane can add.
struct Newcomer {
  std::uint32_t place = 0;
  const segment::UpstreamConfig* upstream = nullptr;
};
/// Returns the upstreams of `next` that `running` lacks, as pointers into `next`. They are assigned to the
/// spare slots after the existing upstreams first, and then to the slots of removed upstreams, in the order
/// of their removal.
std::vector<Newcomer> newcomers(const segment::ConfigBlock& running, const segment::ConfigBlock& next,
                                const segment::UpstreamPlaces& places);

}  // namespace sluice::config
