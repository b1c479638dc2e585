// SPDX-License-Identifier: Apache-2.0
#include "controlplane/upstreams/reach_watch.h"

#include <algorithm>

#include "controlplane/events/kinds.h"

namespace sluice::upstreams {
namespace {

/// One look may find a connection that is about to be there.
constexpr std::uint32_t kLooksUntilLost = 2;

}  // namespace

void ReachWatch::look(const segment::ConfigBlock& config, bool data_plane_alive, std::uint64_t now_ns) {
  if (!data_plane_alive) return;
  for (std::uint32_t i = 0; i < std::min(config.upstream_count, segment::kMaxUpstreams); ++i) {
    std::uint64_t connections = 0;
    std::uint64_t connecting = 0;
    std::uint64_t waiting = 0;
    for (std::uint32_t reactor = 0; reactor < config.reactors; ++reactor) {
      const segment::UpstreamArea& area = layout_.reactors[reactor].upstreams[i];
      connections += area.connections.load(std::memory_order_relaxed);
      connecting += area.connecting.load(std::memory_order_relaxed);
      waiting += area.waiting.load(std::memory_order_relaxed);
    }
    State& state = states_[i];
    if (state.upstream != config.upstreams[i].name) state = {.upstream = config.upstreams[i].name};
    state.looks_without = connections == 0 && connecting > 0 ? state.looks_without + 1 : 0;
    if (connections > 0 && state.reach != Reach::Found) {
      const bool was_lost = state.reach == Reach::Lost;
      const std::uint64_t lost_ms = was_lost ? (now_ns - state.lost_ns) / 1'000'000 : 0;
      state.reach = Reach::Found;
      journal_.add(events::UpstreamFound{.upstream = config.upstreams[i].name,
                                         .lost_s = static_cast<double>(lost_ms) * 1e-3});
    } else if (state.looks_without >= kLooksUntilLost && state.reach != Reach::Lost) {
      state.reach = Reach::Lost;
      state.lost_ns = now_ns;
      journal_.add(events::UpstreamLost{.upstream = config.upstreams[i].name, .waiting = waiting});
    }
  }
}

}  // namespace sluice::upstreams
