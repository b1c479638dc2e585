// SPDX-License-Identifier: Apache-2.0
#include "controlplane/mount/segment_exports.h"
#include "dataplane/segment/checked.h"

namespace sluice::mount {

ExportPaths export_paths_of(const segment::Layout& layout, const std::string& upstream) {
  if (const auto published = layout.config.read_copy())
    for (const segment::UpstreamConfig& entry : published->upstreams)
      if (upstream == entry.name) return export_paths(entry);
  return {.prefix = "//", .exports = {}};
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
