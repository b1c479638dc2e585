// SPDX-License-Identifier: Apache-2.0
//
// Credits of each connection of one reactor: weighted max-min fair shares of the reactor's call slots, up to
// what each has shown that it can use. What is then left over is divided as well, up to each class's maximum:
// no slot is unused while somebody could have it. A connection keeps what it has until another needs it, so that
// grants do not follow every change of what is left over.
//
// A grant that shrinks takes effect with the next reply; calls that are in flight were granted and are served
// (RFC 8166, section 3.3.1; V1-048). Every connection has Receives and slots for its class's maximum, so the
// budget divides the reactor's time, not memory. No I/O and no clock of its own; one thread.
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

  /// Credits that a new connection of a class starts with.
  std::uint32_t first_grant(std::uint32_t client_class) const;
  void joined(std::uint32_t connection, std::uint32_t client_class, std::uint32_t granted,
              std::uint64_t now_ns);
  void left(std::uint32_t connection);
  /// Use of a connection since the last call: `calls` is the total so far,
  /// `peak_busy` the most calls at a time since then.
  void observed(std::uint32_t connection, std::uint64_t calls, std::uint32_t peak_busy, std::uint64_t now_ns);
  /// The grants that should change; valid until the next call.
  std::span<const GrantChange> recompute(std::uint64_t now_ns);

  std::uint32_t granted(std::uint32_t connection) const { return members_[connection].granted; }
  bool idle(std::uint32_t connection, std::uint64_t now_ns) const;
  std::uint32_t connections() const { return present_; }
  std::uint64_t total() const { return total_; }

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
  std::uint64_t divide_rest(std::uint64_t needed, std::size_t first);

  CreditLimits limits_;
  std::vector<Member> members_;
  std::uint32_t present_ = 0;
  double level_ = std::numeric_limits<double>::infinity();  ///< of the shares that are needed
  std::uint64_t spare_ = 0;                                 ///< slots that nobody needs
  std::uint64_t total_ = 0;
  std::size_t first_ = 0;
  std::uint32_t recomputed_ = 0;
  // Scratch memory of recompute().
  std::vector<std::uint32_t> numbers_;
  std::vector<Claim> claims_;
  std::vector<std::uint32_t> wanted_;
  std::vector<std::uint32_t> most_;
  std::vector<GrantChange> changes_;
};

}  // namespace sluice::policy
