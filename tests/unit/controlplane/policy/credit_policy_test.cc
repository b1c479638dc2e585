// SPDX-License-Identifier: Apache-2.0
//
// Credit policy, in a simulation of thousands of connections with clients of several behaviours.
#include "controlplane/policy/credit_policy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

namespace sluice::policy {
namespace {

constexpr std::uint64_t kStepNs = 500'000'000;

/// Returns Jain's fairness index: 1 if all values are equal, 1/n if one client has everything (Jain, Chiu,
/// Hawe 1984).
double jain(const std::vector<double>& values) {
  const double sum = std::accumulate(values.begin(), values.end(), 0.0);
  const double squares = std::inner_product(values.begin(), values.end(), values.begin(), 0.0);
  return squares > 0 ? sum * sum / (static_cast<double>(values.size()) * squares) : 0;
}

/// Clients and a reactor that serves, in each step, as many calls as its capacity allows, in proportion to
/// the outstanding calls. A client receives a new grant with its next reply.
class Simulation {
 public:
  enum class Behaviour { Greedy, Modest, Bursty, Silent, Varying };

  explicit Simulation(const CreditLimits& limits, std::uint32_t connections)
      : policy(limits, connections), clients_(connections) {}

  void join(std::uint32_t number, Behaviour behaviour, std::uint32_t client_class = 0) {
    const std::uint32_t first = policy.first_grant(client_class);
    clients_[number] = {.present = true, .behaviour = behaviour, .granted = first, .known_grant = first};
    policy.joined(number, client_class, first, now_ns_);
  }
  void leave(std::uint32_t number) {
    clients_[number] = {};
    policy.left(number);
  }

  void step(std::uint64_t capacity) {
    now_ns_ += kStepNs;
    ++steps_;
    std::uint64_t outstanding = 0;
    for (Client& client : clients_) outstanding += client.outstanding = client.present ? wants(client) : 0;
    for (std::uint32_t number = 0; number < clients_.size(); ++number) {
      Client& client = clients_[number];
      if (!client.present) continue;
      if (client.outstanding > 0) {
        const double share =
            static_cast<double>(capacity) * client.outstanding / static_cast<double>(outstanding);
        client.served += share;
        client.calls += static_cast<std::uint64_t>(share) + 1;
        client.known_grant = client.granted;
      }
      policy.observed(number, client.calls, client.outstanding, now_ns_);
    }
    for (const GrantChange& change : policy.recompute(now_ns_)) {
      clients_[change.connection].granted = change.credits;
      ++changes;
    }
    for (const Client& client : clients_)
      if (client.present) {
        EXPECT_GE(client.granted, 1u);
      }
  }
  void forget_service() {
    for (Client& client : clients_) client.served = 0;
  }
  std::vector<double> served(Behaviour behaviour) const {
    std::vector<double> values;
    for (const Client& client : clients_)
      if (client.present && client.behaviour == behaviour) values.push_back(client.served);
    return values;
  }
  double served(std::uint32_t number) const { return clients_[number].served; }
  std::uint32_t granted(std::uint32_t number) const { return clients_[number].granted; }
  std::uint64_t granted() const {
    std::uint64_t total = 0;
    for (const Client& client : clients_) total += client.granted;
    return total;
  }

  CreditPolicy policy;
  std::uint64_t changes = 0;

 private:
  struct Client {
    bool present = false;
    Behaviour behaviour = Behaviour::Silent;
    std::uint32_t granted = 0;
    std::uint32_t known_grant = 0;  ///< from the last reply
    std::uint32_t outstanding = 0;
    std::uint64_t calls = 0;
    double served = 0;
  };
  std::uint32_t wants(const Client& client) {
    switch (client.behaviour) {
      case Behaviour::Greedy:
        return client.known_grant;
      case Behaviour::Modest:
        return std::min(client.known_grant, 2u);
      case Behaviour::Bursty:
        return steps_ / 10 % 2 == 0 ? client.known_grant : 0;
      case Behaviour::Silent:
        return 0;
      case Behaviour::Varying:
        return std::min(client.known_grant, static_cast<std::uint32_t>(random_() % 7));
    }
    return 0;
  }

  std::vector<Client> clients_;
  std::uint64_t now_ns_ = 1'000'000'000'000;
  std::uint64_t steps_ = 0;
  std::mt19937 random_{5};
};

using Behaviour = Simulation::Behaviour;

TEST(CreditSimulation, equal_weights_are_served_equally_and_nobody_starves) {
  constexpr std::uint32_t kConnections = 5000;
  constexpr std::uint64_t kSlots = 18000;  // 3.6 for each, so whole credits cannot be equal
  Simulation simulation({.slots = kSlots, .idle_ns = 5 * kStepNs, .classes = {{1, 1, 64}}}, kConnections);
  for (std::uint32_t i = 0; i < kConnections; ++i) simulation.join(i, Behaviour::Greedy);
  for (int i = 0; i < 20; ++i) simulation.step(100000);
  simulation.forget_service();
  for (int i = 0; i < 200; ++i) {
    simulation.step(100000);
    EXPECT_LE(simulation.granted(), kSlots);
  }
  const auto served = simulation.served(Behaviour::Greedy);
  EXPECT_GE(jain(served), 0.99);
  const double mean = 200 * 100000.0 / kConnections;
  EXPECT_GT(*std::min_element(served.begin(), served.end()), 0.8 * mean);
}

TEST(CreditSimulation, idle_and_modest_clients_leave_their_share_to_those_who_use_it) {
  constexpr std::uint32_t kConnections = 4000;
  Simulation simulation({.slots = 16000, .idle_ns = 5 * kStepNs, .classes = {{1, 1, 64}}}, kConnections);
  for (std::uint32_t i = 0; i < kConnections; ++i)
    simulation.join(i, i % 4 == 0 ? Behaviour::Greedy : i % 4 == 1 ? Behaviour::Modest : Behaviour::Silent);
  for (int i = 0; i < 60; ++i) simulation.step(100000);
  // 2000 silent clients keep 1, 1000 modest ones about 4, and 1000 greedy ones share the remainder.
  EXPECT_EQ(simulation.granted(2), 1u);
  EXPECT_LE(simulation.granted(1), 4u);
  EXPECT_GE(simulation.granted(0), 9u);
  EXPECT_LE(simulation.granted(), 16000u);
  simulation.forget_service();
  for (int i = 0; i < 100; ++i) simulation.step(100000);
  EXPECT_GE(jain(simulation.served(Behaviour::Greedy)), 0.99);
  EXPECT_GE(jain(simulation.served(Behaviour::Modest)), 0.99);
  for (const double served : simulation.served(Behaviour::Modest)) EXPECT_GT(served, 0);
}

TEST(CreditSimulation, weights_divide_and_limits_hold) {
  Simulation simulation(
      {.slots = 6000, .idle_ns = 5 * kStepNs, .classes = {{1, 1, 64}, {3, 2, 64}, {1, 1, 2}}}, 2000);
  for (std::uint32_t i = 0; i < 600; ++i) simulation.join(i, Behaviour::Greedy, i % 3);
  for (int i = 0; i < 60; ++i) simulation.step(50000);
  // 200 clients have 2 each. The remaining 5600 are divided in 4 parts: 7 and 21 for each of the others.
  EXPECT_NEAR(simulation.granted(0), 7, 1);
  EXPECT_NEAR(simulation.granted(1), 21, 1);
  EXPECT_EQ(simulation.granted(2), 2u);
}

TEST(CreditSimulation, it_settles_after_a_change_and_then_keeps_still) {
  constexpr std::uint32_t kConnections = 2000;
  Simulation simulation({.slots = 32000, .idle_ns = 5 * kStepNs, .classes = {{1, 1, 64}}}, kConnections);
  for (std::uint32_t i = 0; i < kConnections / 2; ++i) simulation.join(i, Behaviour::Greedy);
  for (int i = 0; i < 10; ++i) simulation.step(100000);
  EXPECT_EQ(simulation.granted(0), 32u);
  // Twice as many clients get half as much each, after two rounds.
  for (std::uint32_t i = kConnections / 2; i < kConnections; ++i) simulation.join(i, Behaviour::Greedy);
  for (int i = 0; i < 3; ++i) simulation.step(100000);
  EXPECT_EQ(simulation.granted(0), 16u);
  EXPECT_EQ(simulation.granted(kConnections - 1), 16u);
  simulation.changes = 0;
  for (int i = 0; i < 50; ++i) simulation.step(100000);
  EXPECT_EQ(simulation.changes, 0u);
  for (std::uint32_t i = 0; i < kConnections / 2; ++i) simulation.leave(i);
  for (int i = 0; i < 3; ++i) simulation.step(100000);
  EXPECT_EQ(simulation.granted(kConnections - 1), 32u);
}

TEST(CreditSimulation, clients_that_come_and_go_in_bursts_get_theirs_when_they_are_there) {
  constexpr std::uint32_t kConnections = 1000;
  Simulation simulation({.slots = 4000, .idle_ns = 3 * kStepNs, .classes = {{1, 1, 64}}}, kConnections);
  for (std::uint32_t i = 0; i < kConnections; ++i)
    simulation.join(i, i % 2 == 0 ? Behaviour::Bursty : Behaviour::Greedy);
  for (int i = 0; i < 20; ++i) simulation.step(100000);
  simulation.forget_service();
  for (int i = 0; i < 200; ++i) simulation.step(100000);
  EXPECT_GE(jain(simulation.served(Behaviour::Bursty)), 0.99);
  EXPECT_GE(jain(simulation.served(Behaviour::Greedy)), 0.99);
}

TEST(CreditPolicy, where_there_is_enough_nobody_is_cut) {
  CreditPolicy policy({.slots = 640, .idle_ns = 5 * kStepNs, .classes = {{1, 1, 64}}}, 10);
  for (std::uint32_t i = 0; i < 10; ++i) {
    EXPECT_EQ(policy.first_grant(0), 64u);
    policy.joined(i, 0, 64, kStepNs);
    policy.observed(i, 1, 1, kStepNs);
  }
  EXPECT_TRUE(policy.recompute(kStepNs).empty());
  EXPECT_TRUE(policy.recompute(20 * kStepNs).empty()) << "nobody else wants what idle ones have";
  for (std::uint32_t i = 0; i < 10; ++i) EXPECT_EQ(policy.granted(i), 64u);
}

TEST(CreditPolicy, one_that_is_alone_keeps_its_credits_over_a_pause) {
  CreditPolicy policy({.slots = 64, .idle_ns = 5 * kStepNs, .classes = {{1, 1, 64}}}, 4);
  policy.joined(0, 0, 64, kStepNs);
  for (std::uint64_t step = 1; step < 100; ++step) {
    policy.observed(0, 1, 0, step * kStepNs);
    EXPECT_TRUE(policy.recompute(step * kStepNs).empty()) << step;
  }
}

/// 15 clients keep four calls outstanding. The last sends as many as it may, every few milliseconds.
TEST(CreditPolicy, what_nobody_needs_is_divided_among_all) {
  CreditPolicy policy({.slots = 256, .idle_ns = 60 * kStepNs, .classes = {{1, 1, 64}}}, 16);
  for (std::uint32_t i = 0; i < 16; ++i) policy.joined(i, 0, 16, 1);
  for (std::uint64_t step = 1; step <= 200; ++step) {
    for (std::uint32_t i = 0; i < 15; ++i) policy.observed(i, step * 100, 4, step * kStepNs);
    policy.observed(15, step * 100, policy.granted(15), step * kStepNs);
    policy.recompute(step * kStepNs);
    if (step < 20) continue;
    EXPECT_EQ(policy.granted(15), 64u);
    EXPECT_EQ(policy.total(), 256u) << "none is unused";
    for (std::uint32_t i = 0; i < 15; ++i) EXPECT_GE(policy.granted(i), 7u);
  }
}

TEST(CreditPolicy, what_a_burst_has_brought_is_kept_until_another_needs_it) {
  CreditPolicy policy({.slots = 96, .idle_ns = 1000 * kStepNs, .classes = {{1, 1, 64}}}, 4);
  for (std::uint32_t i = 0; i < 4; ++i) policy.joined(i, 0, 24, 1);
  std::uint64_t step = 1;
  const auto run = [&](std::uint32_t of_first, std::uint32_t of_second) {
    std::size_t changes = 0;
    for (int i = 0; i < 30; ++i, ++step) {
      for (std::uint32_t number : {2u, 3u}) policy.observed(number, step, 1, step * kStepNs);
      policy.observed(0, step, std::min(of_first, policy.granted(0)), step * kStepNs);
      policy.observed(1, step, std::min(of_second, policy.granted(1)), step * kStepNs);
      changes += policy.recompute(step * kStepNs).size();
    }
    return changes;
  };
  run(64, 1);
  EXPECT_EQ(policy.granted(0), 64u);
  EXPECT_EQ(run(1, 1), 0u) << "nobody else wants them";
  EXPECT_EQ(policy.granted(0), 64u);
  run(1, 64);
  EXPECT_EQ(policy.granted(1), 64u);
  EXPECT_EQ(policy.total(), 96u);
}

TEST(CreditPolicy, what_one_leaves_behind_goes_to_the_others) {
  CreditPolicy policy({.slots = 96, .idle_ns = 1000 * kStepNs, .classes = {{1, 1, 64}}}, 4);
  for (std::uint32_t i = 0; i < 4; ++i) policy.joined(i, 0, 24, 1);
  for (std::uint32_t i = 0; i < 4; ++i) policy.observed(i, 1, 1, 2);
  policy.recompute(2);
  EXPECT_EQ(policy.total(), 96u);
  policy.left(3);
  policy.recompute(3);
  EXPECT_EQ(policy.total(), 96u);
  for (std::uint32_t i = 0; i < 3; ++i) EXPECT_EQ(policy.granted(i), 32u);
}

TEST(CreditPolicy, a_small_demand_decays_to_nothing) {
  CreditPolicy policy({.slots = 8, .idle_ns = 1000 * kStepNs, .classes = {{1, 1, 64}}}, 2);
  for (std::uint32_t i : {0u, 1u}) policy.joined(i, 0, 4, 1);
  for (std::uint64_t step = 1; step < 40; ++step) {
    policy.observed(0, step, 0, step * kStepNs);  // an occasional call that no sample has observed
    policy.observed(1, step * 100, policy.granted(1), step * kStepNs);
    policy.recompute(step * kStepNs);
  }
  EXPECT_EQ(policy.granted(0), 1u);
  EXPECT_EQ(policy.granted(1), 7u);
}

TEST(CreditPolicy, a_new_connection_starts_with_what_nobody_needs) {
  CreditPolicy policy({.slots = 100, .idle_ns = 1000 * kStepNs, .classes = {{1, 1, 64}}}, 4);
  policy.joined(0, 0, 64, 1);
  for (std::uint64_t step = 1; step < 40; ++step) {
    policy.observed(0, step, 2, step * kStepNs);
    policy.recompute(step * kStepNs);
  }
  EXPECT_EQ(policy.first_grant(0), 64u);
  policy.joined(1, 0, 64, 40 * kStepNs);
  EXPECT_EQ(policy.first_grant(0), 32u) << "100 less 4 that the first needs, and 64";
}

TEST(CreditSimulation, changing_use_below_the_budget_changes_no_grants) {
  constexpr std::uint32_t kConnections = 1000;
  Simulation simulation({.slots = 20000, .idle_ns = 5 * kStepNs, .classes = {{1, 1, 64}}}, kConnections);
  for (std::uint32_t i = 0; i < kConnections; ++i)
    simulation.join(i, i % 10 == 0 ? Behaviour::Greedy : Behaviour::Varying);
  for (int i = 0; i < 100; ++i) simulation.step(100000);
  EXPECT_EQ(simulation.granted(0), 64u);
  EXPECT_EQ(simulation.policy.total(), 20000u);
  simulation.changes = 0;
  for (int i = 0; i < 200; ++i) simulation.step(100000);
  EXPECT_EQ(simulation.changes, 0u);
}

TEST(CreditPolicy, an_idle_one_gives_up_what_another_needs_and_gets_it_back) {
  CreditPolicy policy({.slots = 640, .idle_ns = 5 * kStepNs, .classes = {{1, 1, 64}}}, 11);
  for (std::uint32_t i = 0; i < 11; ++i) policy.joined(i, 0, 64, kStepNs);
  for (std::uint32_t i = 0; i < 10; ++i) policy.observed(i, 100, 64, 20 * kStepNs);
  const auto idle = policy.recompute(20 * kStepNs);
  EXPECT_EQ(idle.size(), 2u) << "the idle one, and the one that gives the credit that it keeps";
  EXPECT_EQ(policy.granted(10), 1u);
  EXPECT_EQ(policy.total(), 640u);
  policy.observed(10, 2, 1, 21 * kStepNs);
  policy.recompute(21 * kStepNs);
  EXPECT_EQ(policy.granted(10), 58u) << "640 for eleven";
}

}  // namespace
}  // namespace sluice::policy
