// SPDX-License-Identifier: Apache-2.0
#include "controlplane/admin/views/memory.h"

#include <algorithm>
#include <fstream>
#include <string>
#include <vector>

#include "dataplane/base/net_address.h"
#include "dataplane/segment/checked.h"

namespace sluice::admin {
namespace {

constexpr std::size_t kHoldersShown = 5;

/// VmRSS, from /proc. Zero when there is no such process.
std::uint64_t resident_bytes(std::uint32_t pid) {
  std::ifstream status("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(status, line);)
    if (line.rfind("VmRSS:", 0) == 0) return std::stoull(line.substr(6)) * 1024;
  return 0;
}

Json describe_pools(const segment::Layout& layout, const segment::ConfigBlock& config) {
  Json list = Json::array();
  for (std::uint32_t reactor = 0; reactor < config.reactors; ++reactor)
    for (std::size_t i = 0; i < segment::kSharedPools.size(); ++i) {
      const segment::PoolUse& use = layout.reactors[reactor].pools[i];
      list.push_back({{"reactor", reactor},
                      {"pool", segment::kSharedPools[i].name},
                      {"size", segment::kSharedPools[i].size},
                      {"buffers", use.buffers.load()},
                      {"held", use.held.load()},
                      {"waiting", use.waiting.load()}});
    }
  return list;
}

Json describe_upstream_pools(const segment::Layout& layout, const segment::ConfigBlock& config) {
  Json list = Json::array();
  for (std::uint32_t reactor = 0; reactor < config.reactors; ++reactor)
    for (std::uint32_t upstream = 0; upstream < config.upstream_count; ++upstream)
      for (std::size_t i = 0; i < segment::kUpstreamPools.size(); ++i) {
        const segment::PoolUse& use = layout.reactors[reactor].upstreams[upstream].pools[i];
        list.push_back({{"reactor", reactor},
                        {"upstream", config.upstreams[upstream].name},
                        {"pool", segment::kUpstreamPools[i]},
                        {"size", use.buffers.load()},
                        {"held", use.held.load()},
                        {"waiting", use.waiting.load()}});
      }
  return list;
}

Json describe_holders(const segment::Layout& layout, const segment::ConfigBlock& config) {
  struct Holder {
    std::uint64_t bytes;
    std::uint32_t reactor;
    std::uint32_t connection;
  };
  std::vector<Holder> holders;
  for (std::uint32_t reactor = 0; reactor < config.reactors; ++reactor)
    for (std::uint32_t number = 0; number < config.all_connections(); ++number) {
      const segment::ConnectionUse& use = layout.reactors[reactor].use[number];
      const std::uint64_t bytes = use.open.load() != 0 ? use.held_bytes.load() : 0;
      if (bytes > 0) holders.push_back({bytes, reactor, number});
    }
  const std::size_t shown = std::min(holders.size(), kHoldersShown);
  std::partial_sort(holders.begin(), holders.begin() + static_cast<std::ptrdiff_t>(shown), holders.end(),
                    [](const Holder& a, const Holder& b) { return a.bytes > b.bytes; });
  Json list = Json::array();
  for (std::size_t i = 0; i < shown; ++i) {
    const auto info = layout.reactors[holders[i].reactor].connections[holders[i].connection].read();
    list.push_back({{"reactor", holders[i].reactor},
                    {"connection", holders[i].connection},
                    {"peer", info ? to_string(info->peer) : ""},
                    {"held_bytes", holders[i].bytes}});
  }
  return list;
}

}  // namespace

Json memory(const segment::Layout& layout, const segment::ConfigBlock& config) {
  Json parts = Json::array();
  if (const auto table = segment::checked(layout.memory))
    for (const auto& part : *table)
      if (part.reserved_bytes > 0)
        parts.push_back({{"what", part.what}, {"reserved_bytes", part.reserved_bytes}});
  const std::uint32_t pid = layout.data_plane.pid.load();
  return {{"resident_bytes", pid != 0 ? resident_bytes(pid) : 0},
          {"parts", parts},
          {"shared", describe_pools(layout, config)},
          {"upstreams", describe_upstream_pools(layout, config)},
          {"biggest_holders", describe_holders(layout, config)}};
}

}  // namespace sluice::admin
