// SPDX-License-Identifier: Apache-2.0
#include "controlplane/mount/segment_exports.h"

#include <algorithm>

namespace sluice::mount {
namespace {

bool allowed(const segment::ExportConfig& entry, const PeerAddress& client) {
  if (entry.allowed_count == 0) return true;
  for (std::uint32_t i = 0; i < std::min(entry.allowed_count, segment::kMaxAllowed); ++i)
    if (client.within(entry.allowed[i].address, entry.allowed[i].prefix_bits)) return true;
  return false;
}

}  // namespace

std::vector<std::string> SegmentExports::list() {
  std::vector<std::string> paths;
  if (const auto published = layout_.config.read())
    for (const segment::ExportConfig& entry : published->exports)
      if (entry.in_use != 0) paths.emplace_back(entry.path);
  return paths;
}

MountAnswer SegmentExports::mount(const std::string& path, const PeerAddress& client) {
  const auto published = layout_.config.read();
  if (!published) return {MountStatus::ServerFault, {}};
  for (std::uint32_t i = 0; i < published->exports.size(); ++i) {
    const segment::ExportConfig& entry = published->exports[i];
    if (entry.in_use == 0 || path != entry.path) continue;
    if (!allowed(entry, client)) return {MountStatus::Acces, {}};
    const auto info = layout_.exports[i].read();
    if (!info || info->in_use == 0 || info->root_handle_bytes > segment::kMaxHandleBytes)
      return {MountStatus::ServerFault, {}};
    return {MountStatus::Ok, {info->root_handle, info->root_handle + info->root_handle_bytes}};
  }
  return {MountStatus::NoEnt, {}};
}

}  // namespace sluice::mount
