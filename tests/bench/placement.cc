// SPDX-License-Identifier: Apache-2.0
//
// Round trip of a cache line between the two processors: the median over short batches, which is insensitive
// to brief preemption. The result is NaN if the processors were preempted for most of the time.
#include <atomic>
#include <limits>
#include <numeric>
#include <thread>

#include "cli/bench/client.h"
#include "tests/bench/worker.h"

namespace sluice::bench {
namespace {

constexpr std::uint32_t kBatches = 5000;
constexpr std::uint32_t kRoundTrips = 16;  // per batch
/// The run is discarded if all batches together take this many times as long as the median batch suggests.
constexpr double kCrowded = 2;

double round_trip_ns(double) {
  alignas(64) std::atomic<std::uint32_t> line{0};
  std::thread other([&] {
    pin(kServerCpu);
    for (std::uint32_t turn = 0; turn < kBatches * kRoundTrips; ++turn) {
      while (line.load(std::memory_order_acquire) != 2 * turn + 1) {
      }
      line.store(2 * turn + 2, std::memory_order_release);
    }
  });
  pin(kClientCpu);
  std::vector<double> batches;
  std::uint64_t begun_ns = now_ns();
  for (std::uint32_t turn = 0; turn < kBatches * kRoundTrips; ++turn) {
    line.store(2 * turn + 1, std::memory_order_release);
    while (line.load(std::memory_order_acquire) != 2 * turn + 2) {
    }
    if ((turn + 1) % kRoundTrips != 0) continue;
    const std::uint64_t now = now_ns();
    batches.push_back(static_cast<double>(now - begun_ns) / kRoundTrips);
    begun_ns = now;
  }
  other.join();
  const double whole = std::accumulate(batches.begin(), batches.end(), 0.0);
  const double typical = median(std::move(batches));
  return whole > kCrowded * typical * kBatches ? std::numeric_limits<double>::quiet_NaN() : typical;
}

constexpr Side kSides[] = {{"round_trip_ns", round_trip_ns}};

}  // namespace
}  // namespace sluice::bench

int main() {
  return sluice::bench::serve(sluice::bench::kSides);
}
