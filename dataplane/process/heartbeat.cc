// SPDX-License-Identifier: Apache-2.0
#include "dataplane/process/heartbeat.h"

#include <utility>

namespace sluice::process {
namespace {

constexpr std::uint64_t kNextEpoch = std::uint64_t{1} << 32;

std::uint64_t turns_of(const segment::ReactorArea& area) {
  std::uint64_t turns = 0;
  for (std::size_t i = 0; i < segment::kReactorCounterCount; ++i)
    if (segment::kReactorCounters[i].name.starts_with("polls_"))
      turns += area.counters[i].load(std::memory_order_relaxed);
  return turns;
}

}  // namespace

ProcessHeartbeat::ProcessHeartbeat(segment::Layout& layout, std::uint32_t reactors)
    : layout_(layout), turns_(reactors) {
  layout.data_plane.owner.fetch_add(kNextEpoch);
  segment::start_heartbeat(layout.data_plane, segment::monotonic_ns(), segment::wall_ns());
}

ProcessHeartbeat::~ProcessHeartbeat() {
  layout_.data_plane.pid = 0;
}

bool ProcessHeartbeat::beat() {
  bool all = true;
  for (std::size_t i = 0; i < turns_.size(); ++i) {
    const std::uint64_t turns = turns_of(layout_.reactors[i]);
    all &= std::exchange(turns_[i], turns) != turns;
  }
  if (all) segment::beat(layout_.data_plane, segment::monotonic_ns());
  return all;
}

}  // namespace sluice::process
