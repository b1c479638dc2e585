// SPDX-License-Identifier: Apache-2.0
#include "controlplane/admin/slow_calls.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "controlplane/admin/declarations/declarations.h"
#include "controlplane/admin/views/calls.h"
#include "controlplane/events/text.h"
#include "dataplane/base/net_address.h"

namespace sluice::admin {
namespace {

constexpr double kMicrosecondsPerNs = 1e-3;

Json describe(const segment::CallTable& table, std::uint32_t reactor, const segment::SlowCall& slow,
              const config::Config& config) {
  Json call = describe_call(table, slow.call);
  call["time"] = events::time_of(slow.ended_ns);
  call["reactor"] = reactor;
  call["connection"] = slow.call.connection;
  call["peer"] = to_string(slow.peer);
  call["class"] = config.classes[slow.client_class < config.classes.size() ? slow.client_class : 0].name;
  if (slow.replied == 0) call["status"] = "connection_lost";
  if (slow.upstream_ns != 0) call["upstream_us"] = static_cast<double>(slow.upstream_ns) * kMicrosecondsPerNs;
  return call;
}

/// By the reactors' wall clocks.
using Found = std::vector<std::pair<std::uint64_t, Json>>;

struct Reader {
  const segment::Layout& layout;
  const config::Config& config;
  Found found{};
  std::uint64_t missed = 0;

  /// From number `from` on; returns where to read on. Any number is valid input: one that the ring has not reached is of
  /// another data plane's file.
  std::uint64_t read(std::uint32_t reactor, std::uint64_t from) {
    const segment::SlowCallRing& ring = layout.slow_calls[reactor];
    const std::uint64_t end = ring.written.load(std::memory_order_acquire);
    const std::uint64_t oldest = end > ring.kRecords ? end - ring.kRecords : 0;
    if (from > end) from = 0;
    if (from != 0 && from < oldest) missed += oldest - from;
    const std::uint64_t first = std::max(from, oldest);
    const std::uint64_t last = std::min(end, first + kSlowCallsPerAnswer);
    for (std::uint64_t at = first; at < last; ++at) {
      const auto slow = ring.records[at % ring.kRecords].read();
      if (slow && slow->number == at)
        found.emplace_back(slow->ended_ns, describe(layout.reactors[reactor].calls, reactor, *slow, config));
      else
        ++missed;  // overwritten since
    }
    return last;
  }
};

Json read_slow_calls(const segment::Layout& layout, const config::Config& config, const Json& parameters) {
  const auto from = parameters.at("from").get<std::vector<std::uint64_t>>();
  Reader reader{layout, config};
  Json next = Json::array();
  for (std::uint32_t i = 0; i < config.block.reactors; ++i)
    next.push_back(reader.read(i, i < from.size() ? from[i] : 0));
  std::stable_sort(reader.found.begin(), reader.found.end(),
                   [](const auto& one, const auto& other) { return one.first < other.first; });
  Json calls = Json::array();
  for (auto& [ended_ns, call] : reader.found) calls.push_back(std::move(call));
  return {{"next", next}, {"missed", reader.missed}, {"calls", calls}};
}

}  // namespace

void add_slow_calls(Registry& registry, const segment::Layout& layout, const config::Config& config) {
  registry.add(declared("slow_calls"),
               [&](const Json& parameters) { return read_slow_calls(layout, config, parameters); });
}

}  // namespace sluice::admin
