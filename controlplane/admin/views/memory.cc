// SPDX-License-Identifier: Apache-2.0
#include "controlplane/admin/views/memory.h"

#include <fstream>
#include <string>

namespace sluice::admin {
namespace {

using nlohmann::json;

/// VmRSS, from /proc. Zero when there is no such process.
std::uint64_t resident_bytes(std::uint32_t pid) {
  std::ifstream status("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(status, line);)
    if (line.rfind("VmRSS:", 0) == 0) return std::stoull(line.substr(6)) * 1024;
  return 0;
}

}  // namespace

nlohmann::json memory(const segment::Layout& layout) {
  json parts = json::array();
  if (const auto table = layout.memory.read())
    for (const auto& part : *table)
      if (part.reserved_bytes > 0)
        parts.push_back({{"what", part.what}, {"reserved_bytes", part.reserved_bytes}});
  const std::uint32_t pid = layout.data_plane.pid.load();
  return {{"resident_bytes", pid != 0 ? resident_bytes(pid) : 0}, {"parts", parts}};
}

}  // namespace sluice::admin
