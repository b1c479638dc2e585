// SPDX-License-Identifier: Apache-2.0
//
// Credit policy for the connections of one reactor, and its settings. It computes weighted max-min fair
// shares of the reactor's call slots, up to the demand that each connection has shown. The remaining slots
// are divided as well, up to the maximum of each class, so no slot stays unused while a connection could
// use it. A connection keeps its grant until another connection needs the slots, so that grants do not
// follow every change of the remainder.
//
// A reduced grant takes effect with the next reply. Calls in flight were sent under the old grant and are
// served (RFC 8166, section 3.3.1; V1-048). Every connection has Receives and slots for its class's
// maximum, so the budget divides the reactor's time and not its memory. Performs no I/O and reads no clock;
// single-threaded.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "dataplane/segment/config_block.h"

namespace sluice::policy {

/// A claim to a weighted max-min fair share: no share can grow without shrinking one that is smaller in
/// proportion to its weight.
struct Claim {
  double weight = 1;        ///< above zero
  std::uint32_t least = 1;  ///< minimum share, which is always granted
  std::uint32_t most = 1;   ///< maximum share, not below `least`
};

struct FairShares {
  /// Share per unit of weight, for claims that are bounded neither by `least` nor by `most`.
  double level = 0;
  std::uint64_t total = 0;
};

/// Divides `budget` among `claims` into `shares`, which has the same size. The sum of the shares is at most
/// the budget, or the sum of all `least` if that is larger. The remainder from rounding down is distributed
/// one by one to the claims from number `first` on. Callers advance `first` from time to time, so that the
/// distribution evens out.
FairShares fair_shares(std::span<const Claim> claims, std::uint64_t budget, std::size_t first,
                       std::span<std::uint32_t> shares);

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
  bool within_budget(std::uint64_t total) const;

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

/// Class of clients. Class 0, "default", has the clients whose addresses match no prefix.
struct ClientClass {
  std::string name = "default";
  std::vector<segment::AllowedPrefix> clients{};
  ClassLimits credits;
  std::uint32_t max_connections_per_client = 16;
  bool gone = false;  ///< no longer configured; the class has no clients but keeps its number
};

/// Returns the class with the longest prefix that matches the client, or class 0.
inline std::uint32_t class_of(const std::vector<ClientClass>& classes, const PeerAddress& client) {
  std::uint32_t found = 0;
  std::uint32_t longest = 0;
  for (std::uint32_t i = 1; i < classes.size(); ++i)
    for (const segment::AllowedPrefix& prefix : classes[i].clients) {
      if (!client.within(prefix.address, prefix.prefix_bits) || prefix.prefix_bits < longest) continue;
      found = i;
      longest = prefix.prefix_bits;
    }
  return found;
}

/// Class of the connections of an authenticated host.
struct HostClass {
  std::string host;
  std::uint32_t client_class = 0;
};

/// Settings of the credit policy from the configuration. The credit controller holds a copy, which a reload
/// replaces.
struct CreditSettings {
  std::uint32_t reactors = 1;
  std::uint32_t connections = 0;  ///< entries in the connection table of one reactor
  std::uint32_t interval_ms = 0;  ///< interval between recomputations
  CreditLimits limits;
  std::vector<ClientClass> classes{1};  ///< the first class is "default"
  std::vector<HostClass> host_classes;  ///< authenticated hosts with a class, by name
};

}  // namespace sluice::policy
