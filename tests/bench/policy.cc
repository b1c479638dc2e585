// SPDX-License-Identifier: Apache-2.0
//
// Run time of the credit policy for many connections of a segment, when there are too few credits for all and
// the demand of every fourth connection has changed.
#include <vector>

#include "controlplane/policy/credit_policy.h"
#include "tests/bench/worker.h"

namespace sluice::bench {
namespace {

double median_ms(std::uint32_t connections) {
  pin(kServerCpu);
  policy::CreditPolicy policy(
      {.slots = 3 * std::uint64_t{connections}, .classes = {{1, 1, 64}, {3, 1, 64}, {2, 2, 16}}},
      connections);
  for (std::uint32_t i = 0; i < connections; ++i) policy.joined(i, i % 3, policy.first_grant(i % 3), 1);
  std::vector<double> times;
  for (std::uint64_t round = 1; round <= 51; ++round) {
    const std::uint64_t now_ns = round * 500'000'000;
    const std::uint64_t begun_ns = thread_ns();
    for (std::uint32_t i = 0; i < connections; ++i)
      policy.observed(i, round, (i + round) % 4 == 0 ? 1 : policy.granted(i), now_ns);
    policy.recompute(now_ns);
    times.push_back(static_cast<double>(thread_ns() - begun_ns) * 1e-6);
  }
  return median(std::move(times));
}

constexpr Side kSides[] = {{"ms_1000", [](double) { return median_ms(1000); }},
                           {"ms_10000", [](double) { return median_ms(10'000); }}};

}  // namespace
}  // namespace sluice::bench

int main() {
  return sluice::bench::serve(sluice::bench::kSides);
}
