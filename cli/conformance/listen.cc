// SPDX-License-Identifier: Apache-2.0
#include "cli/conformance/listen.h"

#include <algorithm>
#include <csignal>
#include <ostream>

#include "cli/conformance/stage.h"

namespace sluice::conformance {
namespace {

constexpr std::uint32_t kCallsBetween = 30;

volatile std::sig_atomic_t stop_requested = 0;

void request_stop(int) {
  stop_requested = 1;
}

MakeUpstream upstream_of(const std::string& address) {
  if (address.empty()) return [] { return std::make_unique<NullUpstream>(); };
  return [address] { return std::make_unique<TcpUpstream>(address); };
}

void serve(Responder& responder, const std::function<bool()>& done) {
  while (!done()) {
    responder.turn();
    if (!responder.waiting().empty()) responder.serve(responder.take());
  }
}

/// Lest what one provocation has caused is laid to the next.
void serve_some(Responder& responder, std::uint64_t patience_ns, const std::function<bool()>& stopped) {
  const std::uint64_t end = responder.calls_served() + kCallsBetween;
  responder.wait(patience_ns, [&] {
    if (!responder.waiting().empty()) responder.serve(responder.take());
    return responder.calls_served() >= end || stopped();
  });
}

}  // namespace

std::vector<Result> listen(rdma::Device& device, rdma::ConnectionManager& manager,
                           const ListenOptions& options, std::span<const Test* const> tests,
                           std::ostream& log) {
  Judge judge(options.responder.version);
  const MakeUpstream make_upstream = upstream_of(options.upstream);
  make_upstream();  // a wrong address is told at once
  Responder responder(device, manager, judge, make_upstream, options.responder);
  std::signal(SIGINT, request_stop);
  std::signal(SIGTERM, request_stop);
  log << "Listening on port " << options.responder.port << "." << std::endl;
  const auto chosen = [&](const Test& test) {
    return std::find(tests.begin(), tests.end(), &test) != tests.end();
  };
  const std::function<bool()> stopped = [] { return stop_requested != 0; };
  std::vector<Result> results;
  serve(responder,
        [&] { return stopped() || (!options.calm && responder.calls_served() >= options.first_calls); });
  if (!options.calm) {
    const auto patience_ns = static_cast<std::uint64_t>(options.patience_s * 1e9);
    for (const Provocation* provocation : provocations_of(options.responder.version)) {
      if (!chosen(provocation->test)) continue;
      serve_some(responder, patience_ns, stopped);
      results.push_back(provoke(*provocation, responder, patience_ns, options.strict, stopped));
    }
    log << "All has been tried." << std::endl;
  }
  serve(responder, stopped);
  for (Result& result : judge.results(options.strict))
    if (chosen(*result.test)) results.push_back(std::move(result));
  std::stable_sort(results.begin(), results.end(), [](const Result& a, const Result& b) {
    return rows_of(*a.test).front() < rows_of(*b.test).front();
  });
  return results;
}

std::vector<const Test*> client_tests(std::uint32_t version) {
  std::vector<const Test*> tests;
  for (const Rule* rule : client_rules(version)) tests.push_back(&rule->test);
  for (const Provocation* provocation : provocations_of(version)) tests.push_back(&provocation->test);
  return tests;
}

}  // namespace sluice::conformance
