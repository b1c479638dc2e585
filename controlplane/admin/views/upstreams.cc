// SPDX-License-Identifier: Apache-2.0
#include "controlplane/admin/views/upstreams.h"

#include <algorithm>
#include <array>
#include <span>
#include <vector>

#include "controlplane/config/upstreams.h"
#include "dataplane/base/net_address.h"
#include "dataplane/base/uring_features.h"

namespace sluice::admin {
namespace {

constexpr std::size_t kCounters = std::size(segment::kUpstreamCounters);

/// Values of one upstream, summed over all reactors.
struct Sum {
  std::array<std::uint64_t, kCounters> counters{};
  std::uint32_t connections = 0, connecting = 0, outstanding = 0, waiting = 0, credit_limit = 0;
  UringFeatures uring = UringFeatures::all();  ///< features that every reactor uses
  segment::Histogram upstream_ns;

  std::uint64_t operator[](segment::UpstreamCounter counter) const {
    return counters[static_cast<std::size_t>(counter)];
  }
};

void sum_up(Sum& sum, const segment::Layout& layout, const segment::ConfigBlock& config,
            std::uint32_t number) {
  for (std::uint32_t reactor = 0; reactor < config.reactors; ++reactor) {
    const segment::UpstreamArea& area = layout.reactors[reactor].upstreams[number];
    for (std::size_t i = 0; i < kCounters; ++i)
      sum.counters[i] += layout.places.value(segment::CounterFamily::Upstream, i, area.counters);
    sum.connections += area.connections.load(std::memory_order_relaxed);
    sum.connecting += area.connecting.load(std::memory_order_relaxed);
    sum.outstanding += area.outstanding.load(std::memory_order_relaxed);
    sum.waiting += area.waiting.load(std::memory_order_relaxed);
    // The lowest limit of all reactors counts. Zero means no limit.
    const std::uint32_t limit = area.credit_limit.load(std::memory_order_relaxed);
    if (limit != 0) sum.credit_limit = sum.credit_limit == 0 ? limit : std::min(sum.credit_limit, limit);
    sum.uring = UringFeatures(sum.uring.bits() & area.uring_features.load(std::memory_order_relaxed));
    sum.upstream_ns.merge(area.upstream_ns);
  }
}

double microseconds(std::uint64_t ns) {
  return static_cast<double>(ns) * 1e-3;
}
const char* state_of(const Sum& sum) {
  if (sum.connections > 0) return sum.credit_limit > 0 ? "slow" : "up";
  return sum.connecting > 0 ? "unreachable" : "idle";
}

bool in_use(const segment::Layout& layout, const segment::ConfigBlock& config, std::uint32_t number,
            const PeerAddress& address) {
  for (std::uint32_t reactor = 0; reactor < config.reactors; ++reactor)
    if (layout.reactors[reactor].upstreams[number].address.read() == address) return true;
  return false;
}

/// Returns the names of the features.
Json features(UringFeatures used) {
  Json names = Json::array();
  for (std::size_t i = 0; i < kUringFeatureNames.size(); ++i)
    if (used.has(static_cast<UringFeature>(i))) names.push_back(kUringFeatureNames[i]);
  return names;
}

/// Returns the addresses of an upstream in order of preference. The list is empty if none of its names has
/// been resolved.
Json addresses_of(const segment::Layout& layout, const segment::ConfigBlock& config, std::uint32_t number) {
  Json shown = Json::array();
  const auto table = layout.upstream_addresses.read();
  const auto* const list = table ? segment::addresses_of(*table, config.upstreams[number].name) : nullptr;
  if (list == nullptr) return shown;
  for (std::uint32_t i = 0; i < list->count; ++i) {
    const segment::UpstreamAddress& entry = list->addresses[i];
    shown.push_back({{"address", to_string(entry.address)},
                     {"in_use", in_use(layout, config, number, entry.address)},
                     {"answers", entry.answers > 0                       ? "yes"
                                 : entry.failures >= segment::kBadChecks ? "no"
                                                                         : "unknown"}});
  }
  return shown;
}

}  // namespace

Json upstreams(const segment::Layout& layout, const segment::ConfigBlock& config) {
  Json list = Json::array();
  for (std::uint32_t i = 0; i < config.upstream_count; ++i) {
    const segment::UpstreamConfig& upstream = config.upstreams[i];
    Sum sum;
    sum_up(sum, layout, config, i);
    const MeanLatency mean = mean_latency(layout, config, i);
    using Counter = segment::UpstreamCounter;
    list.push_back(
        {{"name", upstream.name},
         {"addresses", addresses_of(layout, config, i)},
         {"port", upstream.port},
         {"listen_port", config.port_of(upstream)},
         {"state", upstream.removed != 0 ? "removed" : state_of(sum)},
         {"connections", sum.connections},
         {"connecting", sum.connecting},
         {"outstanding", sum.outstanding},
         {"waiting", sum.waiting},
         {"credit_limit", sum.credit_limit},
         {"io_uring", features(sum.uring)},
         {"calls", sum[Counter::calls]},
         {"replies", sum[Counter::replies]},
         {"resent", sum[Counter::resent]},
         {"timeouts", sum[Counter::timeouts]},
         {"upstream_p50_us", microseconds(sum.upstream_ns.percentile(0.5))},
         {"upstream_p99_us", microseconds(sum.upstream_ns.percentile(0.99))},
         {"mean_us",
          {{"upstream", mean.upstream_us}, {"gateway", mean.gateway_us}, {"rdma", mean.rdma_us}}}});
  }
  return list;
}

Json upstream_counters(const segment::Layout& layout, const segment::ConfigBlock& config) {
  Json list = Json::array();
  for (std::uint32_t i = 0; i < config.upstream_count; ++i) {
    Sum sum;
    sum_up(sum, layout, config, i);
    Json entry = {{"name", config.upstreams[i].name}};
    for (std::size_t c = 0; c < kCounters; ++c)
      entry[std::string(segment::kUpstreamCounters[c].name)] = sum.counters[c];
    list.push_back(entry);
  }
  return list;
}

Json reverse(const segment::Layout& layout, const segment::ConfigBlock& config) {
  if (config.reverse.in_use == 0) return Json::object();
  std::uint32_t clients = 0, connected = 0, outstanding = 0;
  segment::Histogram server_ns;
  for (std::uint32_t reactor = 0; reactor < config.reactors; ++reactor) {
    const segment::ReverseArea& area = layout.reactors[reactor].reverse;
    clients += area.clients.load(std::memory_order_relaxed);
    connected += area.connected.load(std::memory_order_relaxed);
    outstanding += area.outstanding.load(std::memory_order_relaxed);
    server_ns.merge(area.server_ns);
  }
  const Json counters = reverse_counters(layout, config);
  Json shown = {{"listen_port", config.reverse.listen_port},
                {"server", to_string(config.reverse.server)},
                {"server_port", config.reverse.server_port},
                {"state", clients == 0                         ? "idle"
                          : connected == 0 && outstanding != 0 ? "unreachable"
                                                               : "up"},
                {"clients", clients},
                {"connected", connected},
                {"outstanding", outstanding},
                {"server_p50_us", microseconds(server_ns.percentile(0.5))},
                {"server_p99_us", microseconds(server_ns.percentile(0.99))}};
  for (const char* counter : {"calls", "replies", "failures", "timeouts", "calls_lost", "server_resets"})
    shown[counter] = counters[counter];
  return shown;
}

Json reverse_counters(const segment::Layout& layout, const segment::ConfigBlock& config) {
  Json shown = Json::object();
  for (std::size_t c = 0; c < std::size(segment::kReverseCounters); ++c) {
    std::uint64_t sum = 0;
    for (std::uint32_t reactor = 0; reactor < config.reactors; ++reactor)
      sum +=
          layout.places.value(segment::CounterFamily::Reverse, c, layout.reactors[reactor].reverse.counters);
    shown[std::string(segment::kReverseCounters[c].name)] = sum;
  }
  return shown;
}

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

/// Returns `upstream` and all upstreams that share programs with it, directly or through other upstreams.
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

/// Returns the mean time from the arrival of a call to the end of its reply. Covers the calls of all programs
/// that `upstreams` serve.
Mean in_all(const segment::Layout& layout, const segment::ConfigBlock& block,
            std::span<const std::uint32_t> upstreams) {
  Mean all;
  for (std::uint32_t reactor = 0; reactor < block.reactors; ++reactor) {
    const segment::CallTable& table = layout.reactors[reactor].calls;
    const std::uint32_t procedures =  // pairs with ServiceTable::describe(): `info`
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
