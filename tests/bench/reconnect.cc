// SPDX-License-Identifier: Apache-2.0
//
// Connection management with many connections: processor time of a request and of an iteration of the loop,
// and duration of a storm of reconnecting clients. Reactors, clients and time are simulated, but each
// iteration of the control plane takes its real processor time.
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "controlplane/cm/connection_controller.h"
#include "controlplane/cm/outbox.h"
#include "controlplane/config/config.h"
#include "controlplane/events/journal.h"
#include "controlplane/policy/credit_controller.h"
#include "controlplane/tasks/arena.h"
#include "dataplane/log/log.h"
#include "dataplane/segment/segment.h"
#include "tests/bench/simulated_fleet.h"
#include "tests/bench/worker.h"

namespace sluice::bench {
namespace {

constexpr std::uint32_t kAll = kFleetReactors * segment::kMaxConnections;
/// Request rate that a site with this many clients configures. A reactor sets up 2,000 connections per
/// second.
constexpr std::uint32_t kRequestsPerSecond = 10'000;
constexpr std::uint32_t kAtATime = 32;
constexpr int kRounds = 25;
// Waits of the control plane's loop (controlplane/main.cc).
constexpr std::uint64_t kLeastWaitNs = 2 * kMs;
constexpr std::uint64_t kMostWaitNs = 16 * kMs;
constexpr std::uint64_t kGiveUpNs = 600'000 * kMs;

class Lab {
 public:
  Lab(std::uint32_t requests_per_second, std::uint32_t clients)
      : config_(config::parse("[reactor]\ncount = 8\ncpus = [0, 1, 2, 3, 4, 5, 6, 7]\n"
                              "[transport]\ncredits = 4\nmax_connections = 16384\n"
                              "[device]\ndriver = \"softroce\"\nethdev = \"x\"\naddresses = "
                              "[\"192.0.2.1/24\"]\n[admission]\nmax_requests_per_second = " +
                                  std::to_string(requests_per_second) + "\n[policy]\nmax_credits = 4\n",
                              "bench")) {
    segment::Segment::remove(name_);
    segment_ = segment::Segment::open_or_create(name_);
    clients_ = std::make_unique<SimulatedClients>(layout(), clients);
    reactors_ =
        std::make_unique<SimulatedReactors>(layout(), [this](std::uint32_t up) { clients_->on_up(up); });
  }
  ~Lab() { segment::Segment::remove(name_); }
  Lab(const Lab&) = delete;
  Lab& operator=(const Lab&) = delete;

  /// Starts a control plane with the present content of the tables.
  void start() {
    outbox_ = std::make_unique<cm::Outbox>(layout());
    credits_ = std::make_unique<policy::CreditController>(layout(), config_.credit_settings());
    keeper_ =
        std::make_unique<cm::ConnectionController>(layout(), config_, *credits_, *outbox_, journal_, tasks_);
    keeper_->take_over();
  }
  segment::Layout& layout() { return segment_->layout(); }
  SimulatedReactors& reactors() { return *reactors_; }
  SimulatedClients& clients() { return *clients_; }
  std::uint64_t now_ns() const { return now_ns_; }

  /// Advances the time. Returns true if the control plane has work.
  bool let_pass(std::uint64_t ns) {
    now_ns_ += ns;
    const bool said = clients_->advance(now_ns_);
    return reactors_->advance(now_ns_) || said;
  }
  void pass(std::uint64_t ns) { now_ns_ += ns; }
  /// Runs an iteration, advances the clock by its processor time, and returns that time.
  std::uint64_t turn() {
    const std::uint64_t begun_ns = thread_ns();
    keeper_->poll(now_ns_);
    credits_->poll(now_ns_);
    const std::uint64_t took_ns = thread_ns() - begun_ns;
    now_ns_ += took_ns;
    return took_ns;
  }
  /// Runs an iteration without the credit policy, and returns its processor time.
  std::uint64_t turn_of_connections() {
    const std::uint64_t begun_ns = thread_ns();
    keeper_->poll(now_ns_);
    return thread_ns() - begun_ns;
  }

 private:
  const std::string name_ = "sluice-bench-reconnect-" + std::to_string(::getpid());
  const config::Config config_;
  Owned<segment::Segment> segment_;
  std::unique_ptr<SimulatedClients> clients_;
  std::unique_ptr<SimulatedReactors> reactors_;
  events::Journal journal_{[](const events::Event&) {}};
  tasks::Arena tasks_{{}};
  std::unique_ptr<cm::Outbox> outbox_;
  std::unique_ptr<policy::CreditController> credits_;
  std::unique_ptr<cm::ConnectionController> keeper_;
  std::uint64_t now_ns_ = 1'000'000'000'000;
};

/// Returns the time of a request with this many connections, in microseconds, up to the command that creates
/// its queue pair. It includes the iteration's other work.
double request_us(std::uint32_t connections) {
  pin(kServerCpu);
  Lab lab(1'000'000, 0);
  lab.reactors().fill(connections);
  lab.start();
  std::vector<double> times;
  std::uint32_t client = kAll;
  for (int round = 0; round < kRounds; ++round) {
    // The requests of the previous round time out, because the reactors do not answer.
    lab.pass(20'000 * kMs);
    for (int i = 0; i < 100; ++i) lab.turn_of_connections();
    segment::Command command;
    for (auto& reactor : lab.layout().reactors)
      while (reactor.commands.pop(command)) {
      }
    segment::Punt punt;
    while (lab.layout().reactors[0].punt_down.pop(punt)) {
    }
    for (std::uint32_t i = 0; i < kAtATime; ++i) lab.clients().ask(client++);
    times.push_back(static_cast<double>(lab.turn_of_connections()) * 1e-3 / kAtATime);
    std::uint32_t made = 0;
    for (auto& reactor : lab.layout().reactors) made += reactor.commands.size();
    if (made != kAtATime)
      return std::fprintf(stderr, "%u of %u requests were admitted\n", made, kAtATime), -1;
  }
  return median(std::move(times));
}

/// Returns the time of an iteration in microseconds with as many timers as connections. More timers are due
/// than an iteration handles.
double tick_us(std::uint32_t connections) {
  pin(kServerCpu);
  Lab lab(1'000'000, 0);
  lab.reactors().fill(connections);
  lab.start();
  // All peers get disconnect requests for their connections, which are retransmitted because no peer answers.
  lab.reactors().lose_all();
  for (std::uint32_t i = 0; i <= connections / cm::kEntriesPerLook; ++i) lab.turn_of_connections();
  std::vector<double> times;
  for (std::uint32_t i = 0; i < std::min(connections / 64, 1000u); ++i) {
    lab.pass(2 * kMs);
    segment::Punt punt;
    while (lab.layout().reactors[0].punt_down.pop(punt)) {
    }
    times.push_back(static_cast<double>(lab.turn_of_connections()) * 1e-3);
  }
  return median(std::move(times));
}

struct StormResult {
  double seconds;
  double fairness;
};

StormResult storm(std::uint32_t clients) {
  pin(kServerCpu);
  Lab lab(kRequestsPerSecond, clients);
  lab.start();
  const std::uint64_t start_ns = lab.now_ns();
  lab.clients().outage(start_ns);
  std::uint64_t wait_ns = kLeastWaitNs;
  while (lab.clients().connected() < clients && lab.now_ns() - start_ns < kGiveUpNs) {
    const bool any = lab.let_pass(wait_ns);
    lab.turn();
    wait_ns = any ? kLeastWaitNs : std::min(2 * wait_ns, kMostWaitNs);
  }
  if (lab.clients().connected() != clients || lab.reactors().connections() != clients)
    std::fprintf(stderr, "%zu of %u clients are connected, the reactors have %u connections\n",
                 lab.clients().connected(), clients, lab.reactors().connections());
  return {static_cast<double>(lab.now_ns() - start_ns) * 1e-9, lab.clients().fairness()};
}

constexpr Side kSides[] = {{"request_us_131k", [](double) { return request_us(kAll - 1024); }},
                           {"request_us_1k", [](double) { return request_us(1024); }},
                           {"tick_us_131k", [](double) { return tick_us(kAll); }},
                           {"tick_us_1k", [](double) { return tick_us(1024); }},
                           {"storm_100k_s", [](double) { return storm(100'000).seconds; }},
                           {"storm_10k_s", [](double) { return storm(10'000).seconds; }},
                           {"storm_fairness", [](double) { return storm(100'000).fairness; }},
                           {"one", [](double) { return 1.0; }}};

}  // namespace
}  // namespace sluice::bench

int main() {
  sluice::log::set_level(sluice::log::Level::Error);
  return sluice::bench::serve(sluice::bench::kSides);
}
