// SPDX-License-Identifier: Apache-2.0
//
// Credit policy for the connections of one reactor. It computes weighted max-min fair shares of the reactor's
// call slots, up to the demand that each connection has shown. The remaining slots are divided as well, up to
// the maximum of each class, so no slot stays unused while a connection could use it. A connection keeps its
// grant until another connection needs the slots, so that grants do not follow every change of the remainder.
//
// A reduced grant takes effect with the next reply. Calls in flight were sent under the old grant and are
// served (RFC 8166, section 3.3.1; V1-048). Every connection has Receives and slots for its class's maximum,
// so the budget divides the reactor's time and not its memory. Performs no I/O and reads no clock;
// single-threaded.
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
  std::uint64_t slots = 0;  ///< call slots of one reactor
  std::uint64_t idle_ns = 30'000'000'000;
  std::vector<ClassLimits> classes;  ///< indexed by class number; not empty
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

  /// Returns the initial credits of a new connection of a class.
  std::uint32_t first_grant(std::uint32_t client_class) const;
  void joined(std::uint32_t connection, std::uint32_t client_class, std::uint32_t granted,
              std::uint64_t now_ns);
  void left(std::uint32_t connection);
  /// Records the use of a connection since the last call. `calls` is its total so far, and `peak_busy` is the
  /// maximum of concurrent calls since the last call.
  void observed(std::uint32_t connection, std::uint64_t calls, std::uint32_t peak_busy, std::uint64_t now_ns);
  /// Computes the grants and returns the changes. The result is valid until the next call.
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
  double level_ = std::numeric_limits<double>::infinity();  ///< fair share per unit of weight
  std::uint64_t spare_ = 0;                                 ///< slots beyond the demand of all connections
  std::uint64_t total_ = 0;
  std::size_t first_ = 0;
  std::uint32_t recomputed_ = 0;
  // Scratch memory for recompute().
  std::vector<std::uint32_t> numbers_;
  std::vector<Claim> claims_;
  std::vector<std::uint32_t> wanted_;
  std::vector<std::uint32_t> most_;
  std::vector<GrantChange> changes_;
};

}  // namespace sluice::policy
