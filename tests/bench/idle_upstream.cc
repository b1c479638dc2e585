// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/idle_upstream.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "cli/bench/client.h"
#include "dataplane/gateway/slots/upstream_slots.h"
#include "dataplane/gateway/tcp_upstream/upstreams.h"
#include "dataplane/ulb/nfs3.h"
#include "pmd/loopback/loopback.h"
#include "tests/unit/gateway/open_registry.h"

namespace sluice::bench {
namespace {

constexpr std::uint64_t kTurnNs = 10'000;

std::uint64_t made_up_ns = 0;

std::uint64_t made_up_clock() noexcept {
  return made_up_ns;
}

double longest_of_interval_us(tcp_upstream::Upstreams& upstreams) {
  std::uint64_t longest_ns = 0;
  std::uint64_t before_ns = now_ns();
  for (std::uint64_t ns = 0; ns < tcp_upstream::kCreditIntervalNs; ns += kTurnNs) {
    made_up_ns += kTurnNs;
    upstreams.poll(made_up_ns);
    const std::uint64_t after_ns = now_ns();
    longest_ns = std::max(longest_ns, after_ns - before_ns);
    before_ns = after_ns;
  }
  return static_cast<double>(longest_ns) / 1000;
}

}  // namespace

double longest_turn_us(std::uint32_t clients, double seconds) {
  const auto device =
      rdma::loopback::make_device(rdma::loopback::Fabric::in_process({.links = 2}), {.name = "gateway"});
  const auto addresses = std::make_unique<segment::SharedUpstreamAddresses>();
  const auto area = std::make_unique<segment::UpstreamArea>();
  tcp_upstream::CreditLimits credits(clients);
  tcp_upstream::DuplicateRequestCache cache(4096, clients);
  tcp_upstream::UpstreamSetup setup;
  setup.config.name = "upstream";
  setup.config.addresses = addresses.get();
  setup.config.max_clients = clients;
  setup.config.cache = &cache;
  setup.area = area.get();
  made_up_ns = now_ns();
  OpenRegistry registry;
  tcp_upstream::Upstreams upstreams(*device, credits, registry, {.upstreams = {setup}}, &made_up_clock);
  gateway::UpstreamSlots slots({area.get()}, upstreams.sides(), {});
  slots.start(0, setup.config);
  longest_of_interval_us(upstreams);
  std::vector<double> longest;
  for (const std::uint64_t begin_ns = now_ns();
       longest.empty() || static_cast<double>(now_ns() - begin_ns) < seconds * 1e9;)
    longest.push_back(longest_of_interval_us(upstreams));
  std::nth_element(longest.begin(), longest.begin() + static_cast<std::ptrdiff_t>(longest.size() / 2),
                   longest.end());
  return longest[longest.size() / 2];
}

}  // namespace sluice::bench
