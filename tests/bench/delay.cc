// SPDX-License-Identifier: Apache-2.0
//
// Calls over a wire with a given delay, by version and inline threshold. A side is 'QUANTITY TRANSPORT WORK
// ONE_WAY_US DEPTH':
// us                     time of a call: the median of each call of the work, divided by the depth
// round_trips            round trips of a call, exact
// sends, reads, writes   RDMA operations of both ends for a call
#include <algorithm>
#include <cstdio>
#include <iostream>
#include <memory>
#include <string>

#include "tests/bench/delayed_ends.h"
#include "tests/bench/worker.h"

namespace sluice::bench {
namespace {

struct Asked {
  std::string quantity, transport, work;
  std::uint32_t one_way_us = 0;
  std::uint32_t depth = 1;
  double seconds = 0;
};

template <typename Range>
const auto& named(const Range& range, const std::string& name) {
  const auto found =
      std::find_if(range.begin(), range.end(), [&](const auto& one) { return one.name == name; });
  if (found == range.end()) throw std::runtime_error("There is no '" + name + "'.");
  return *found;
}

/// The ends of one transport, kept while requests use the same transport.
struct Kept {
  std::uint32_t one_way_us = 0;
  DelayedEnds::Clock clock{};
  std::unique_ptr<DelayedEnds> ends;
};

DelayedEnds& ends_of(const Transport& transport, std::uint32_t one_way_us, DelayedEnds::Clock clock) {
  static std::array<Kept, kTransports.size()> all;
  Kept& kept = all[static_cast<std::size_t>(&transport - kTransports.data())];
  if (!kept.ends || kept.one_way_us != one_way_us || kept.clock != clock) {
    kept.ends.reset();
    kept = {one_way_us, clock, std::make_unique<DelayedEnds>(transport, one_way_us * 1000ull, clock)};
  }
  return *kept.ends;
}

double microseconds(const Asked& asked, const Transport& transport, const Work& work) {
  DelayedEnds& ends = ends_of(transport, asked.one_way_us, DelayedEnds::Clock::Processor);
  const auto calls = work.calls(ends.files());
  ends.run(calls, asked.depth, asked.seconds / 10);  // warm-up, not measured
  ends.run(calls, asked.depth, asked.seconds);
  double sum_ns = 0;
  for (const auto& of_call : ends.latencies_ns()) sum_ns += median(of_call);
  return sum_ns / static_cast<double>(calls.size()) / asked.depth / 1000;
}

double counted(const Asked& asked, const Transport& transport, const Work& work) {
  DelayedEnds& ends = ends_of(transport, asked.one_way_us, DelayedEnds::Clock::Trips);
  const auto calls = work.calls(ends.files());
  ends.run(calls, asked.depth, asked.seconds);
  const auto before = ends.operations();
  ends.run(calls, asked.depth, asked.seconds);
  const auto after = ends.operations();
  double sum_ns = 0;
  double of_calls = 0;
  for (const auto& latencies : ends.latencies_ns()) {
    of_calls += static_cast<double>(latencies.size());
    for (const double ns : latencies) sum_ns += ns;
  }
  if (asked.quantity == "sends") return static_cast<double>(after.sends - before.sends) / of_calls;
  if (asked.quantity == "reads") return static_cast<double>(after.reads - before.reads) / of_calls;
  if (asked.quantity == "writes") return static_cast<double>(after.writes - before.writes) / of_calls;
  return sum_ns / of_calls / (2000.0 * asked.one_way_us);
}

double measure(const Asked& asked) {
  const Transport& transport = named(kTransports, asked.transport);
  const Work& work = named(works(), asked.work);
  return asked.quantity == "us" ? microseconds(asked, transport, work) : counted(asked, transport, work);
}

}  // namespace
}  // namespace sluice::bench

int main() {
  sluice::bench::Asked asked;
  while (std::cin >> asked.quantity >> asked.transport >> asked.work >> asked.one_way_us >> asked.depth >>
         asked.seconds) {
    std::printf("%.9g\n", sluice::bench::measure(asked));
    std::fflush(stdout);
  }
}
