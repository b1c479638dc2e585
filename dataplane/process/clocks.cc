// SPDX-License-Identifier: Apache-2.0
#include "dataplane/process/clocks.h"

#include <rte_cycles.h>

#include <atomic>

#include "dataplane/segment/segment.h"

namespace sluice::process {
namespace {

std::atomic<std::uint64_t> wall_minus_tsc_ns{0};

}  // namespace

std::uint64_t tsc_ns() noexcept {
  static const double ns_per_cycle = 1e9 / static_cast<double>(rte_get_tsc_hz());
  return static_cast<std::uint64_t>(static_cast<double>(rte_rdtsc()) * ns_per_cycle);
}

std::uint64_t wall_ns() noexcept {
  return tsc_ns() + wall_minus_tsc_ns.load(std::memory_order_relaxed);
}

void set_wall_clock() noexcept {
  wall_minus_tsc_ns.store(segment::wall_ns() - tsc_ns(), std::memory_order_relaxed);
}

}  // namespace sluice::process
