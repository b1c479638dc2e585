// SPDX-License-Identifier: Apache-2.0
//
// `exports` and `prefix` of the [[upstream]] tables: several upstreams for NFS version 3, each with exports of its own.
// Setup; one thread.
#pragma once

#include <string_view>
#include <vector>

#include "controlplane/json/json.h"
#include "dataplane/segment/config_block.h"

namespace sluice::config {

/// Null: there is none of that name. Points into `block`.
const segment::UpstreamConfig* upstream_named(const segment::ConfigBlock& block, std::string_view name);
/// Whether the upstream's part of `exports` is another one with the same data plane: both are for one with a tag.
bool changes_live(const segment::UpstreamConfig& running, const segment::UpstreamConfig& next);
/// Whether the upstream serves nothing but its own exports: such ones come and go by a reload.
bool serves_only_exports(const segment::UpstreamConfig& upstream);
/// An upstream that a running data plane can take up.
struct Newcomer {
  std::uint32_t place = 0;
  const segment::UpstreamConfig* upstream = nullptr;
};
/// Those of `next` that `running` does not have: in the spare places behind the ones that it has, and then in those of
/// removed ones, who was removed first before the others. Point into `next`.
std::vector<Newcomer> newcomers(const segment::ConfigBlock& running, const segment::ConfigBlock& next,
                                const segment::UpstreamPlaces& places);
Json describe_own_exports(const segment::UpstreamConfig& entry);

}  // namespace sluice::config
