// SPDX-License-Identifier: Apache-2.0
//
// Connection management with many connections: the processor time of a request and of a turn of the loop, and
// how long a storm of clients that connect again lasts.
#include <algorithm>
#include <memory>
#include <vector>

#include "tests/bench/reconnect_lab.h"

namespace sluice::bench {
namespace {

constexpr std::uint32_t kAll = 131'072;
/// What a site with so many clients configures; a reactor makes 2,000 connections in a second.
constexpr std::uint32_t kRequestsPerSecond = 10'000;
constexpr std::uint32_t kAtATime = 32;
constexpr int kRounds = 25;

/// With this many connections, a request: to the command that makes its queue pair.
double request_us(std::uint32_t connections) {
  pin(kServerCpu);
  ReconnectLab lab(1'000'000);
  lab.fill(connections);
  std::vector<double> times;
  std::uint32_t client = kAll;
  for (int round = 0; round < kRounds; ++round) {
    // Those of the round before are given up: the reactors do not answer.
    lab.pass(20'000 * kLabMs);
    for (int i = 0; i < 100; ++i) lab.turn();
    for (std::uint32_t reactor = 0; reactor < kLabReactors; ++reactor) {
      segment::Command command;
      while (lab.layout().reactors[reactor].commands.pop(command)) {
      }
    }
    segment::Punt punt;
    while (lab.layout().reactors[0].punt_down.pop(punt)) {
    }
    for (std::uint32_t i = 0; i < kAtATime; ++i) lab.ask(client++);
    times.push_back(static_cast<double>(lab.turn()) * 1e-3 / kAtATime);
    std::uint32_t made = 0;
    for (std::uint32_t reactor = 0; reactor < kLabReactors; ++reactor)
      made += lab.layout().reactors[reactor].commands.size();
    if (made != kAtATime) return -1;  // the measurement is void
  }
  return median(std::move(times));
}

/// With this many connections and as many timers, of which more are due than a turn handles.
double tick_us(std::uint32_t connections) {
  pin(kServerCpu);
  ReconnectLab lab(1'000'000);
  lab.fill(connections);
  // The data plane is gone: all peers are told, and asked again and again.
  for (std::uint32_t reactor = 0; reactor < kLabReactors; ++reactor)
    for (auto& entry : lab.layout().reactors[reactor].connections)
      if (entry.sequence() != 0) entry.write({});
  lab.keeper().rebuild();
  std::vector<double> times;
  for (std::uint32_t i = 0; i < std::min(connections / 64, 1000u); ++i) {
    lab.pass(2 * kLabMs);
    segment::Punt punt;
    while (lab.layout().reactors[0].punt_down.pop(punt)) {
    }
    times.push_back(static_cast<double>(lab.turn()) * 1e-3);
  }
  return median(std::move(times));
}

double storm_s(std::uint32_t clients) {
  pin(kServerCpu);
  return Storm(clients, kRequestsPerSecond).run();
}

double storm_fairness() {
  pin(kServerCpu);
  Storm storm(100'000, kRequestsPerSecond);
  storm.run();
  return storm.fairness();
}

constexpr Side kSides[] = {{"request_us_131k", [](double) { return request_us(kAll - 1024); }},
                           {"request_us_1k", [](double) { return request_us(1024); }},
                           {"tick_us_131k", [](double) { return tick_us(kAll); }},
                           {"tick_us_1k", [](double) { return tick_us(1024); }},
                           {"storm_100k_s", [](double) { return storm_s(100'000); }},
                           {"storm_10k_s", [](double) { return storm_s(10'000); }},
                           {"storm_fairness", [](double) { return storm_fairness(); }},
                           {"one", [](double) { return 1.0; }}};

}  // namespace
}  // namespace sluice::bench

int main() {
  return sluice::bench::serve(sluice::bench::kSides);
}
