// SPDX-License-Identifier: Apache-2.0
#include "controlplane/mount/segment_exports.h"

#include <algorithm>
#include <span>

#include "dataplane/segment/checked.h"

namespace sluice::mount {

ExportPaths export_paths_of(const segment::Layout& layout, const std::string& upstream) {
  if (const auto published = layout.config.read_copy())
    for (const segment::UpstreamConfig& entry : published->upstreams)
      if (upstream == entry.name && entry.removed == 0) return export_paths(entry);
  return {.prefix = "//", .exports = {}};
}

std::vector<segment::UpstreamConfig> group_in_force(const segment::Layout& layout) {
  std::vector<segment::UpstreamConfig> group;
  const auto published = layout.config.read_copy();
  const auto places = layout.upstream_places.read();
  if (!published || !places || published->generation != layout.generation_applied.load()) return group;
  const auto count = std::min(published->upstream_count, segment::kMaxUpstreams);
  for (const segment::UpstreamConfig& entry : std::span(published->upstreams).first(count))
    if (entry.handle_tag != 0 && entry.removed == 0 && places->serves(entry.name)) group.push_back(entry);
  return group;
}

void SegmentExports::list(const Asker& asker, OnList done) {
  std::vector<std::string> paths;
  if (const auto published = layout_.config.read_copy())
    for (const segment::ExportConfig& entry : published->exports)
      if (entry.in_use != 0 && allowed(entry.allowed, entry.allowed_count, asker.address))
        paths.emplace_back(entry.path);
  done(&paths);
}

void SegmentExports::mount(const std::string& path, const Asker& asker, OnMount done) {
  done(answer(path, asker.address));
}

MountAnswer SegmentExports::answer(const std::string& path, const PeerAddress& client) {
  const auto published = layout_.config.read_copy();
  if (!published) return {MountStatus::ServerFault, {}};
  for (std::uint32_t i = 0; i < published->exports.size(); ++i) {
    const segment::ExportConfig& entry = published->exports[i];
    if (entry.in_use == 0 || path != entry.path) continue;
    if (!allowed(entry.allowed, entry.allowed_count, client)) return {MountStatus::Acces, {}};
    const auto info = segment::checked(layout_.exports[i]);
    if (!info || info->in_use == 0 || info->root_handle_bytes == 0) return {MountStatus::ServerFault, {}};
    return {MountStatus::Ok, {info->root_handle, info->root_handle + info->root_handle_bytes}};
  }
  return {MountStatus::NoEnt, {}};
}

}  // namespace sluice::mount
