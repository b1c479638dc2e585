// SPDX-License-Identifier: Apache-2.0
#include "controlplane/admin/views/credits.h"

#include <atomic>
#include <vector>

namespace sluice::admin {
namespace {

struct Sums {
  std::uint64_t connections = 0, granted = 0, used = 0, idle = 0;
};

/// Sums of the open connections of clients on `reactor`; each counts for its class in `by_class` too.
Sums sum_up(const segment::ReactorArea& area, std::uint32_t connections, const policy::CreditPolicy& policy,
            std::vector<Sums>& by_class, std::uint64_t now_ns) {
  Sums of_reactor;
  for (std::uint32_t number = 0; number < connections; ++number) {
    const segment::ConnectionUse& use = area.use[number];
    if (use.open.load(std::memory_order_relaxed) != segment::ConnectionUse::kOfClient) continue;
    const std::uint32_t client_class = use.client_class.load(std::memory_order_relaxed);
    for (Sums* sums : {&of_reactor, &by_class[client_class < by_class.size() ? client_class : 0]}) {
      ++sums->connections;
      sums->granted += use.granted.load(std::memory_order_relaxed);
      sums->used += use.busy.load(std::memory_order_relaxed);
      sums->idle += policy.idle(number, now_ns) ? 1 : 0;
    }
  }
  return of_reactor;
}

Json describe_class(const policy::ClientClass& client_class, const Sums& sums) {
  return {{"class", client_class.name},
          {"weight", client_class.credits.weight},
          {"min_credits", client_class.credits.min_credits},
          {"max_credits", client_class.credits.max_credits},
          {"connections", sums.connections},
          {"idle", sums.idle},
          {"granted", sums.granted},
          {"used", sums.used}};
}

}  // namespace

Json credits(const segment::Layout& layout, const config::Config& config, const policy::CreditKeeper& keeper,
             std::uint64_t now_ns) {
  std::vector<Sums> by_class(config.classes.size());
  Json reactors = Json::array();
  for (std::uint32_t reactor = 0; reactor < config.block.reactors; ++reactor) {
    const policy::CreditPolicy& policy = keeper.policy(reactor);
    const Sums sums =
        sum_up(layout.reactors[reactor], config.block.all_connections(), policy, by_class, now_ns);
    reactors.push_back({{"reactor", reactor},
                        {"slots", policy.limits().slots},
                        {"connections", sums.connections},
                        {"idle", sums.idle},
                        {"granted", sums.granted},
                        {"used", sums.used}});
  }
  Json classes = Json::array();
  for (std::size_t i = 0; i < by_class.size(); ++i)
    classes.push_back(describe_class(config.classes[i], by_class[i]));
  const policy::CreditStatistics& statistics = keeper.statistics();
  return {{"reactors", reactors},
          {"classes", classes},
          {"recomputations", statistics.recomputations},
          {"last_recomputation_ms", static_cast<double>(statistics.last_recomputation_ns) * 1e-6},
          {"grants_changed", statistics.changes}};
}

}  // namespace sluice::admin
