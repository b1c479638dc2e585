// SPDX-License-Identifier: Apache-2.0
#include "controlplane/admin/views/credits.h"

#include <algorithm>
#include <atomic>
#include <utility>

namespace sluice::admin {
namespace {

Json describe_class(const policy::ClientClass& client_class) {
  return {{"class", client_class.name},
          {"weight", client_class.credits.weight},
          {"min_credits", client_class.credits.min_credits},
          {"max_credits", client_class.credits.max_credits}};
}

void add_sums(Json& entry, const auto& sums) {
  entry["connections"] = sums.connections;
  entry["idle"] = sums.idle;
  entry["granted"] = sums.granted;
  entry["used"] = sums.used;
}

}  // namespace

CreditSums::CreditSums(const segment::Layout& layout, const config::Config& config,
                       const policy::CreditKeeper& keeper, std::uint64_t now_ns)
    : layout_(layout),
      config_(config),
      keeper_(keeper),
      now_ns_(now_ns),
      by_reactor_(config.block.reactors),
      by_class_(config.classes.size()) {}

void CreditSums::add_connection(std::uint32_t reactor, std::uint32_t number) {
  const segment::ConnectionUse& use = layout_.reactors[reactor].use[number];
  if (use.open.load(std::memory_order_relaxed) != segment::ConnectionUse::kOfClient) return;
  const std::uint32_t client_class = use.client_class.load(std::memory_order_relaxed);
  const bool idle = keeper_.policy(reactor).idle(number, now_ns_);
  for (Sums* sums : {&by_reactor_[reactor], &by_class_[client_class < by_class_.size() ? client_class : 0]}) {
    ++sums->connections;
    sums->granted += use.granted.load(std::memory_order_relaxed);
    sums->used += use.busy.load(std::memory_order_relaxed);
    sums->idle += idle ? 1 : 0;
  }
}

bool CreditSums::add(Pace& pace) {
  const std::uint32_t connections = config_.block.all_connections();
  for (; reactor_ < by_reactor_.size(); ++reactor_, number_ = 0)
    for (; number_ < connections; ++number_) {
      if (pace.spent()) return false;
      pace.look();
      add_connection(reactor_, number_);
    }
  return true;
}

Json CreditSums::result() const {
  Json reactors = Json::array();
  for (std::uint32_t reactor = 0; reactor < by_reactor_.size(); ++reactor) {
    Json entry = {{"reactor", reactor}, {"slots", keeper_.policy(reactor).limits().slots}};
    add_sums(entry, by_reactor_[reactor]);
    reactors.push_back(std::move(entry));
  }
  Json classes = Json::array();
  // A reload may have changed the classes since the first connection was added.
  for (std::size_t i = 0; i < std::min(by_class_.size(), config_.classes.size()); ++i) {
    Json entry = describe_class(config_.classes[i]);
    add_sums(entry, by_class_[i]);
    classes.push_back(std::move(entry));
  }
  const policy::CreditStatistics& statistics = keeper_.statistics();
  return {{"reactors", reactors},
          {"classes", classes},
          {"recomputations", statistics.recomputations},
          {"last_recomputation_ms", static_cast<double>(statistics.last_recomputation_ns) * 1e-6},
          {"grants_changed", statistics.changes}};
}

}  // namespace sluice::admin
