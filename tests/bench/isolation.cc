// SPDX-License-Identifier: Apache-2.0
//
// Cost of hostile clients for the others: time of the server's iterations until a well-behaved client has its
// answers, alone and with hostile clients. One thread on the loopback driver; iterations of the hostile
// clients are not counted.
#include <algorithm>
#include <array>
#include <chrono>
#include <string>
#include <utility>

#include "tests/bench/worker.h"
#include "tests/conformance/raw_call.h"
#include "tests/isolation/victim.h"

namespace sluice::bench {
namespace {

using conformance::RawCall;
using conformance::TestService;
using isolation::Attack;
using isolation::Attackers;
using isolation::kTurnsToBegin;
using isolation::kTurnToBeginNs;
using isolation::Site;
using isolation::SiteOptions;
using isolation::Victim;

constexpr int kNullsInARound = 50;
constexpr Attack kIdle{.name = "idle", .step = [](isolation::Peer&) {}};

std::uint64_t wall_ns() noexcept {
  return static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
}

struct Served {
  double null_p99_ns = 0;
  double rounds_per_second = 0;  ///< of the time of the server and the client
};

/// Makes rounds of NULL calls with a GETATTR, a list, a READ and a WRITE of 1 MiB.
Served serve(double seconds, std::uint32_t version, const Attack* attack) {
  Site site(attack != nullptr
                ? SiteOptions{.hold_calls = attack->hold_calls, .callers = attack->callers, .measured = true}
                : SiteOptions{.measured = true});
  Victim victim(site, version);
  std::unique_ptr<Attackers> attackers;
  if (attack != nullptr) attackers = std::make_unique<Attackers>(site, *attack);
  for (int i = 0; attackers && i < kTurnsToBegin; ++i) {
    site.turn(kTurnToBeginNs);
    attackers->turn();
  }
  std::vector<double> nulls;
  const std::uint64_t served_before = victim.served_ns();
  std::uint64_t rounds = 0;
  for (const std::uint64_t begin = wall_ns(); static_cast<double>(wall_ns() - begin) < seconds * 1e9;
       ++rounds) {
    for (int i = 0; i < kNullsInARound; ++i) {
      const std::uint64_t before = victim.served_ns();
      victim.run(Victim::Operation::Null, attackers.get());
      nulls.push_back(static_cast<double>(victim.served_ns() - before));
    }
    for (const auto operation : {Victim::Operation::GetAttr, Victim::Operation::List, Victim::Operation::Read,
                                 Victim::Operation::Write})
      victim.run(operation, attackers.get());
  }
  const auto p99 = nulls.begin() + static_cast<std::ptrdiff_t>(nulls.size() * 99 / 100);
  std::nth_element(nulls.begin(), p99, nulls.end());
  return {*p99, static_cast<double>(rounds) * 1e9 / static_cast<double>(victim.served_ns() - served_before)};
}

/// Returns the time of an iteration of the server alone, in nanoseconds, while no client sends anything. Time
/// stands still, so no connection times out.
double quiet_turn_ns(double seconds, const Attack& behaviour) {
  Site site({.connections = 17});
  Victim victim(site, 1);
  Attackers clients(site, behaviour);
  for (int i = 0; i < kTurnsToBegin; ++i) {
    site.turn(kTurnToBeginNs);
    clients.turn();
  }
  constexpr int kBatch = 1000;
  std::vector<double> turns;
  for (const std::uint64_t begin = wall_ns(); static_cast<double>(wall_ns() - begin) < seconds * 1e9;) {
    const std::uint64_t before = wall_ns();
    for (int i = 0; i < kBatch; ++i) site.poll_engine();
    turns.push_back(static_cast<double>(wall_ns() - before) / kBatch);
  }
  return median(std::move(turns));
}

/// Returns the time to close one of seven connections, each of which has `waiting` calls that wait for
/// memory.
double close_us(double seconds, std::uint32_t waiting) {
  std::vector<double> closes;
  for (const std::uint64_t begin = wall_ns(); static_cast<double>(wall_ns() - begin) < seconds * 1e9;) {
    Site site({.connections = 7, .credits = 1024});
    std::vector<std::unique_ptr<isolation::Peer>> peers;
    for (int i = 0; i < 7; ++i) {
      peers.push_back(site.make_peer("peer " + std::to_string(i), 0));
      peers.back()->connect();
    }
    for (std::uint32_t i = 0; i < waiting + 20; ++i) {
      for (const auto& peer : peers) {
        if (peer->connected() && peer->sent < waiting) {
          const auto xid = static_cast<std::uint32_t>(++peer->sent);
          peer->raw().send(RawCall{.xid = xid}.with(conformance::test_call(xid, TestService::kList, {9000})));
        }
        peer->poll();
      }
      site.turn(reactor::SetupPace::kIntervalNs);
    }
    rpcrdma::Connection& connection = site.engine().connection(3);
    const std::uint64_t before = wall_ns();
    connection.close(rpcrdma::CloseReason::LocalClose);
    site.poll_engine();
    closes.push_back(static_cast<double>(wall_ns() - before) / 1e3);
  }
  return median(std::move(closes));
}

double worst(double seconds, double (*ratio_of)(const Served& attacked, const Served& alone), bool highest) {
  double result = highest ? 0 : 1e9;
  for (const std::uint32_t version : {1u, 2u})
    for (const Attack& attack : isolation::attacks()) {
      std::vector<double> ratios;
      for (int pair = 0; pair < 5; ++pair) {
        const Served alone = serve(seconds, version, nullptr);
        ratios.push_back(ratio_of(serve(seconds, version, &attack), alone));
      }
      const double ratio = median(std::move(ratios));
      if (highest ? ratio <= result : ratio >= result) continue;
      result = ratio;
      std::fprintf(stderr, "%s, version %u: %.3g\n", attack.name, version, ratio);
    }
  return result;
}

constexpr Side kSides[] = {
    {"worst_p99_ratio",
     [](double seconds) {
       return worst(
           seconds,
           [](const Served& attacked, const Served& alone) {
             return attacked.null_p99_ns / alone.null_p99_ns;
           },
           true);
     }},
    {"worst_throughput_ratio",
     [](double seconds) {
       return worst(
           seconds,
           [](const Served& attacked, const Served& alone) {
             return attacked.rounds_per_second / alone.rounds_per_second;
           },
           false);
     }},
    {"one", [](double) { return 1.0; }},
    {"turn_ns", [](double seconds) { return quiet_turn_ns(seconds, kIdle); }},
    {"turn_with_silent_clients_ns",
     [](double seconds) { return quiet_turn_ns(seconds, isolation::attacks().front()); }},
    {"close_with_7000_waiting_us", [](double seconds) { return close_us(seconds, 1000); }},
    {"close_with_none_waiting_us", [](double seconds) { return close_us(seconds, 0); }},
};

}  // namespace
}  // namespace sluice::bench

int main() {
  return sluice::bench::serve(sluice::bench::kSides);
}
