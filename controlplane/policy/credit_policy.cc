// SPDX-License-Identifier: Apache-2.0
#include "controlplane/policy/credit_policy.h"

#include <algorithm>

namespace sluice::policy {
namespace {

/// Grants up to this are set exactly. Above, a difference of a few percent is not worth a command.
constexpr std::uint32_t kFineGrants = 8;
/// Recomputations after which the credits that rounding leaves over go to other connections.
constexpr std::uint32_t kRecomputationsPerTurn = 4;

}  // namespace

CreditPolicy::CreditPolicy(const CreditLimits& limits, std::uint32_t max_connections)
    : limits_(limits), members_(max_connections) {
  for (auto* room : {&numbers_, &wanted_}) room->reserve(max_connections);
  claims_.reserve(max_connections);
  changes_.reserve(max_connections);
}

const ClassLimits& CreditPolicy::class_of(std::uint32_t client_class) const {
  return limits_.classes[client_class < limits_.classes.size() ? client_class : 0];
}

std::uint32_t CreditPolicy::first_grant(std::uint32_t client_class) const {
  const ClassLimits& limits = class_of(client_class);
  const double fair = std::min<double>(shares_.level * limits.weight, limits.max_credits);
  constexpr double kRounding = 1e-6;  // of fair_shares()
  return std::max(static_cast<std::uint32_t>(fair + kRounding), limits.min_credits);
}

void CreditPolicy::joined(std::uint32_t connection, std::uint32_t client_class, std::uint32_t granted,
                          std::uint64_t now_ns) {
  Member& member = members_[connection];
  if (!member.present) ++present_;
  member = {.present = true,
            .client_class = client_class,
            .granted = granted,
            .demand = class_of(client_class).max_credits,
            .calls = 0,
            .active_ns = now_ns};
}

void CreditPolicy::left(std::uint32_t connection) {
  if (!members_[connection].present) return;
  members_[connection] = {};
  --present_;
}

void CreditPolicy::observed(std::uint32_t connection, std::uint64_t calls, std::uint32_t peak_busy,
                            std::uint64_t now_ns) {
  Member& member = members_[connection];
  if (calls != member.calls || peak_busy > 0) member.active_ns = now_ns;
  member.calls = calls;
  const std::uint32_t most = class_of(member.client_class).max_credits;
  // A connection that uses its whole grant may want any number. One that does not keeps half as much again as it
  // used, and its demand decays to that slowly.
  const std::uint32_t used = peak_busy >= member.granted ? most : peak_busy + peak_busy / 2 + 1;
  member.demand = std::min(std::max(used, member.demand - member.demand / 4), most);
}

bool CreditPolicy::idle(std::uint32_t connection, std::uint64_t now_ns) const {
  return now_ns - members_[connection].active_ns >= limits_.idle_ns;
}

std::span<const GrantChange> CreditPolicy::recompute(std::uint64_t now_ns) {
  numbers_.clear();
  claims_.clear();
  changes_.clear();
  std::uint64_t most_of_all = 0;
  for (std::uint32_t number = 0; number < members_.size(); ++number) {
    const Member& member = members_[number];
    if (!member.present) continue;
    const ClassLimits& limits = class_of(member.client_class);
    const std::uint32_t most = idle(number, now_ns) ? limits.min_credits : limits.max_credits;
    numbers_.push_back(number);
    claims_.push_back({.weight = limits.weight, .least = limits.min_credits, .most = most});
    most_of_all += most;
  }
  // Demand matters only when the slots do not suffice for the maximum of every connection.
  if (most_of_all > limits_.slots)
    for (std::size_t i = 0; i < numbers_.size(); ++i)
      claims_[i].most = std::clamp(members_[numbers_[i]].demand, claims_[i].least, claims_[i].most);
  wanted_.resize(claims_.size());
  if (++recomputed_ % kRecomputationsPerTurn == 0) first_ += 1 + claims_.size() / 3;
  shares_ = fair_shares(claims_, limits_.slots, claims_.empty() ? 0 : first_ % claims_.size(), wanted_);
  for (std::size_t i = 0; i < numbers_.size(); ++i) {
    Member& member = members_[numbers_[i]];
    const std::uint32_t difference =
        std::max(wanted_[i], member.granted) - std::min(wanted_[i], member.granted);
    if (difference == 0 || (difference == 1 && wanted_[i] >= kFineGrants && wanted_[i] < claims_[i].most))
      continue;
    member.granted = wanted_[i];
    changes_.push_back({numbers_[i], wanted_[i]});
  }
  return changes_;
}

}  // namespace sluice::policy
