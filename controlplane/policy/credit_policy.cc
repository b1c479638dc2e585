// SPDX-License-Identifier: Apache-2.0
#include "controlplane/policy/credit_policy.h"

#include <algorithm>

namespace sluice::policy {
namespace {

/// Grants up to this are set exactly. Above, one credit more is not worth a command; one less is, since it is
/// another's.
constexpr std::uint32_t kFineGrants = 8;
/// Recomputations after which the credits that rounding leaves over go to other connections.
constexpr std::uint32_t kRecomputationsPerTurn = 4;

}  // namespace

CreditPolicy::CreditPolicy(const CreditLimits& limits, std::uint32_t max_connections)
    : limits_(limits), members_(max_connections) {
  for (auto* room : {&numbers_, &wanted_, &most_}) room->reserve(max_connections);
  claims_.reserve(max_connections);
  changes_.reserve(max_connections);
}

const ClassLimits& CreditPolicy::class_of(std::uint32_t client_class) const {
  return limits_.classes[client_class < limits_.classes.size() ? client_class : 0];
}

std::uint32_t CreditPolicy::first_grant(std::uint32_t client_class) const {
  const ClassLimits& limits = class_of(client_class);
  const double fair = std::min<double>(level_ * limits.weight, limits.max_credits);
  constexpr double kRounding = 1e-6;  // of fair_shares()
  const auto spare = static_cast<std::uint32_t>(std::min<std::uint64_t>(spare_, limits.max_credits));
  return std::max({static_cast<std::uint32_t>(fair + kRounding), spare, limits.min_credits});
}

void CreditPolicy::joined(std::uint32_t connection, std::uint32_t client_class, std::uint32_t granted,
                          std::uint64_t now_ns) {
  Member& member = members_[connection];
  if (!member.present) {
    ++present_;
    spare_ -= std::min<std::uint64_t>(spare_, granted);
  }
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
  const std::uint32_t decayed = member.demand - std::max(member.demand / 4, 1u);
  member.demand = std::min(std::max(used, decayed), most);
}

bool CreditPolicy::idle(std::uint32_t connection, std::uint64_t now_ns) const {
  return now_ns - members_[connection].active_ns >= limits_.idle_ns;
}

std::span<const GrantChange> CreditPolicy::recompute(std::uint64_t now_ns) {
  numbers_.clear();
  claims_.clear();
  most_.clear();
  changes_.clear();
  for (std::uint32_t number = 0; number < members_.size(); ++number) {
    const Member& member = members_[number];
    if (!member.present) continue;
    const ClassLimits& limits = class_of(member.client_class);
    const std::uint32_t needed = idle(number, now_ns) ? limits.min_credits : member.demand;
    numbers_.push_back(number);
    most_.push_back(limits.max_credits);
    claims_.push_back({.weight = limits.weight,
                       .least = limits.min_credits,
                       .most = std::clamp(needed, limits.min_credits, limits.max_credits)});
  }
  wanted_.resize(claims_.size());
  if (++recomputed_ % kRecomputationsPerTurn == 0) first_ += 1 + claims_.size() / 3;
  const std::size_t first = claims_.empty() ? 0 : first_ % claims_.size();
  const FairShares needed = fair_shares(claims_, limits_.slots, first, wanted_);
  level_ = needed.level;
  spare_ = limits_.slots - std::min(limits_.slots, needed.total);
  total_ = spare_ > 0 ? divide_rest(needed.total, first) : needed.total;
  for (std::size_t i = 0; i < numbers_.size(); ++i) {
    Member& member = members_[numbers_[i]];
    const bool one_more =
        wanted_[i] == member.granted + 1 && wanted_[i] > kFineGrants && wanted_[i] < most_[i];
    if (wanted_[i] == member.granted || one_more) continue;
    member.granted = wanted_[i];
    changes_.push_back({numbers_[i], wanted_[i]});
  }
  return changes_;
}

/// Each has what it needs, `needed` in all, and there are slots left. A connection that has more keeps it if that
/// is possible for all; else those that have most above their need give it back. What nobody has is divided.
/// Returns the sum.
std::uint64_t CreditPolicy::divide_rest(std::uint64_t needed, std::size_t first) {
  const auto kept_of = [&](std::size_t i) {
    return std::clamp(members_[numbers_[i]].granted, wanted_[i], most_[i]);
  };
  std::uint64_t kept = needed;
  for (std::size_t i = 0; i < claims_.size(); ++i) kept += kept_of(i) - wanted_[i];
  const bool all_keep = kept <= limits_.slots;
  for (std::size_t i = 0; i < claims_.size(); ++i) {
    claims_[i].least = all_keep ? kept_of(i) : wanted_[i];
    claims_[i].most = all_keep ? most_[i] : kept_of(i);
  }
  return fair_shares(claims_, limits_.slots, first, wanted_).total;
}

}  // namespace sluice::policy
