// SPDX-License-Identifier: Apache-2.0
#include "controlplane/admin/views/upstream_latency.h"

#include <algorithm>
#include <span>
#include <vector>

#include "controlplane/config/routes.h"

namespace sluice::admin {
namespace {

struct Mean {
  std::uint64_t sum_ns = 0;
  std::uint64_t count = 0;

  void add(const segment::Histogram& latency) {
    sum_ns += latency.sum();
    count += latency.count();
  }
  double us() const {
    return count == 0 ? 0 : static_cast<double>(sum_ns) * 1e-3 / static_cast<double>(count);
  }
};

std::span<const segment::RouteConfig> routes_of(const segment::UpstreamConfig& upstream) {
  return {upstream.routes.data(), std::min(upstream.route_count, segment::kMaxRoutes)};
}

bool share_a_program(const segment::UpstreamConfig& one, const segment::UpstreamConfig& other) {
  return std::ranges::any_of(routes_of(one),
                             [&](const segment::RouteConfig& route) { return config::takes(other, route); });
}

/// Those that share programs with this one, or with one of those; with itself.
std::vector<std::uint32_t> group_of(const segment::ConfigBlock& block, std::uint32_t upstream) {
  std::vector<std::uint32_t> group{upstream};
  for (std::size_t known = 0; known < group.size(); ++known)
    for (std::uint32_t i = 0; i < block.upstream_count; ++i)
      if (std::ranges::find(group, i) == group.end() &&
          share_a_program(block.upstreams[group[known]], block.upstreams[i]))
        group.push_back(i);
  return group;
}

struct Times {
  Mean upstream;
  Mean gateway;
};

Times times_of(const segment::Layout& layout, const segment::ConfigBlock& block,
               std::span<const std::uint32_t> upstreams) {
  Times times;
  for (std::uint32_t reactor = 0; reactor < block.reactors; ++reactor)
    for (const std::uint32_t i : upstreams) {
      times.upstream.add(layout.reactors[reactor].upstreams[i].upstream_ns);
      times.gateway.add(layout.reactors[reactor].upstreams[i].gateway_ns);
    }
  return times;
}

/// From a call's arrival to the end of its reply.
Mean in_all(const segment::Layout& layout, const segment::ConfigBlock& block,
            std::span<const std::uint32_t> upstreams) {
  Mean all;
  for (std::uint32_t reactor = 0; reactor < block.reactors; ++reactor) {
    const segment::CallTable& table = layout.reactors[reactor].calls;
    const std::uint32_t procedures =
        std::min(table.procedures.load(std::memory_order_acquire), segment::kMaxProcedures);
    for (std::uint32_t procedure = 0; procedure < procedures; ++procedure) {
      const segment::ProcedureInfo& info = table.info[procedure];
      if (std::ranges::none_of(upstreams, [&](std::uint32_t i) {
            return config::takes(block.upstreams[i], {info.program, info.version});
          }))
        continue;
      for (const auto& of_class : table.use) all.add(of_class[procedure].latency);
    }
  }
  return all;
}

}  // namespace

MeanLatency mean_latency(const segment::Layout& layout, const segment::ConfigBlock& block,
                         std::uint32_t upstream) {
  const std::vector<std::uint32_t> group = group_of(block, upstream);
  const Times its = times_of(layout, block, std::span(&upstream, 1));
  const Times of_all = times_of(layout, block, group);
  const double rest = in_all(layout, block, group).us() - of_all.upstream.us() - of_all.gateway.us();
  return {.upstream_us = its.upstream.us(), .gateway_us = its.gateway.us(), .rdma_us = std::max(0.0, rest)};
}

}  // namespace sluice::admin
