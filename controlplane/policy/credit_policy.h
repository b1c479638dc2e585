// SPDX-License-Identifier: Apache-2.0
//
// How many credits each connection of one reactor is granted: fair shares of the reactor's call slots by
// weight, of which a connection that wants less leaves the rest to others, and an idle one nearly all.
//
// A grant that shrinks takes effect with the next reply; calls that are in flight were granted and are served
// (RFC 8166, section 3.3.1; V1-048). Every connection has room for all it can ever be granted, so the budget
// is about who may keep the reactor busy, not about memory. Pure bookkeeping; one thread.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "controlplane/policy/fair_shares.h"

namespace sluice::policy {

struct ClassLimits {
  double weight = 1;
  std::uint32_t min_credits = 1;
  std::uint32_t max_credits = 64;
  bool operator==(const ClassLimits&) const = default;
};

struct CreditLimits {
  std::uint64_t slots = 0;  ///< of one reactor
  std::uint64_t idle_ns = 30'000'000'000;
  std::vector<ClassLimits> classes;  ///< by number; not empty
};

struct GrantChange {
  std::uint32_t connection = 0;
  std::uint32_t credits = 0;
};

class CreditPolicy {
 public:
  CreditPolicy(const CreditLimits& limits, std::uint32_t max_connections);

  void set_limits(const CreditLimits& limits) { limits_ = limits; }
  const CreditLimits& limits() const { return limits_; }

  /// What a connection of a class starts with.
  std::uint32_t first_grant(std::uint32_t client_class) const;
  void joined(std::uint32_t connection, std::uint32_t client_class, std::uint32_t granted,
              std::uint64_t now_ns);
  void left(std::uint32_t connection);
  /// What the connection did since the last time: calls so far, and the most at once.
  void observed(std::uint32_t connection, std::uint64_t calls, std::uint32_t peak_busy, std::uint64_t now_ns);
  /// The grants that should change; valid until the next call.
  std::span<const GrantChange> recompute(std::uint64_t now_ns);

  std::uint32_t granted(std::uint32_t connection) const { return members_[connection].granted; }
  bool idle(std::uint32_t connection, std::uint64_t now_ns) const;
  std::uint32_t connections() const { return present_; }
  std::uint64_t total() const { return shares_.total; }

 private:
  struct Member {
    bool present = false;
    std::uint32_t client_class = 0;
    std::uint32_t granted = 0;
    std::uint32_t demand = 0;
    std::uint64_t calls = 0;
    std::uint64_t active_ns = 0;
  };
  const ClassLimits& class_of(std::uint32_t client_class) const;

  CreditLimits limits_;
  std::vector<Member> members_;
  std::uint32_t present_ = 0;
  FairShares shares_{.level = std::numeric_limits<double>::infinity(), .total = 0};
  std::size_t first_ = 0;
  std::uint32_t recomputed_ = 0;
  // Of one recomputation.
  std::vector<std::uint32_t> numbers_;
  std::vector<Claim> claims_;
  std::vector<std::uint32_t> wanted_;
  std::vector<GrantChange> changes_;
};

}  // namespace sluice::policy
