// SPDX-License-Identifier: Apache-2.0
#include "dataplane/segment/counter_names.h"

#include <string_view>

#include "dataplane/base/invariant.h"
#include "dataplane/base/owned.h"
#include "dataplane/segment/counters.h"
#include "dataplane/segment/ingress.h"
#include "dataplane/segment/upstreams.h"
#include "pmd/softroce/statistics.h"
#include "pmd/verbs/statistics.h"

namespace sluice::segment {
namespace {

static_assert(kTransportCounterRoom <= kMostCounters && kUpstreamCounterRoom <= kMostCounters);
static_assert(kInvariantCount <= kInvariantRoom);

template <typename List>
void put(CounterNames& names, CounterFamily family, const List& list) noexcept {
  auto* to = names.names[static_cast<std::size_t>(family)].data();
  for (const auto& entry : list) {
    const std::string_view name = entry.name;
    name.copy((to++)->data(), kCounterNameBytes);
  }
}

bool is_none(const CounterNames::Name& name) noexcept {
  return name[0] == '\0';
}

}  // namespace

void own_counter_names(CounterNames& names) noexcept {
  names = {};
  put(names, CounterFamily::Transport, kTransportCounters);
  put(names, CounterFamily::Reactor, kReactorCounters);
  put(names, CounterFamily::Invariant, kInvariants);
  put(names, CounterFamily::Upstream, kUpstreamCounters);
  put(names, CounterFamily::Ingress, kIngressCounters);
  put(names, CounterFamily::SoftRoce, rdma::softroce::kStatistics);
  put(names, CounterFamily::Verbs, rdma::verbs::kStatistics);
}

/// As in this release.
CounterPlaces::CounterPlaces() noexcept {
  for (auto& family : places_)
    for (std::uint32_t i = 0; i < family.size(); ++i) family[i].store(i, std::memory_order_relaxed);
}

void CounterPlaces::follow(const CounterNames& theirs) {
  const Owned<CounterNames> ours(new CounterNames());
  own_counter_names(*ours);
  for (std::size_t family = 0; family < kCounterFamilies; ++family)
    for (std::size_t own = 0; own < kMostCounters; ++own) {
      const CounterNames::Name& name = ours->names[family][own];
      if (is_none(name)) continue;
      const auto& list = theirs.names[family];
      std::uint32_t place = 0;
      while (place < list.size() && list[place] != name) ++place;
      places_[family][own].store(place < list.size() ? place : kNone, std::memory_order_relaxed);
    }
}

}  // namespace sluice::segment
