// SPDX-License-Identifier: Apache-2.0
//
// Applies the credit policy to the shared segment. The keeper reads the connected clients and their usage
// from the connection tables, and writes changed grants as desired state (dataplane/segment/desired_state.h).
// Its entire state can be derived from the segment, so that a new control plane can take over.
// Single-threaded.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "controlplane/policy/credit_policy.h"
#include "dataplane/base/net_address.h"

namespace sluice::segment {
struct Layout;
}

namespace sluice::policy {

struct CreditStatistics {
  std::uint64_t recomputations = 0;         ///< completed rounds
  std::uint64_t last_recomputation_ns = 0;  ///< duration of the last round over all reactors
  std::uint64_t changes = 0;                ///< grants that were changed
};

class CreditController {
 public:
  /// `layout` outlives this object.
  CreditController(segment::Layout& layout, CreditSettings settings);

  /// Sets new settings, which take effect at the next poll(). The numbers of reactors and of connections must
  /// not change.
  void reconfigure(CreditSettings settings);
  struct Start {
    std::uint32_t client_class = 0;
    std::uint32_t credits = 0;
  };
  /// Returns the class and the first grant for a new connection of this client.
  Start start_of(std::uint32_t reactor, const PeerAddress& client) const;

  /// Recomputes the grants of one reactor per call, so that an iteration of the loop takes no longer than one
  /// reactor does. A round over all reactors begins when the interval has expired. `now_ns` is
  /// segment::monotonic_ns().
  void poll(std::uint64_t now_ns);
  const CreditStatistics& statistics() const { return statistics_; }
  const CreditPolicy& policy(std::uint32_t reactor) const { return reactors_[reactor].policy; }

 private:
  struct Seen {
    std::uint32_t sequence = 0;  ///< sequence number of the table's entry
    bool open = false;
    std::uint32_t incarnation = 0;
    std::uint32_t client_class = 0;
    std::string host;  ///< empty if the host is not authenticated
    PeerAddress peer;
  };
  struct OfReactor {
    OfReactor(const CreditLimits& limits, std::uint32_t connections)
        : policy(limits, connections), seen(connections) {}
    CreditPolicy policy;
    std::vector<Seen> seen;  ///< indexed by connection number
  };
  void recompute(std::uint32_t reactor, std::uint64_t now_ns);
  /// Returns the class of an authenticated host if one is configured, otherwise the class of the peer's
  /// address.
  std::uint32_t class_of_connection(const Seen& seen) const;
  void observe(std::uint32_t reactor, std::uint64_t now_ns);
  bool read_entry(std::uint32_t reactor, std::uint32_t number, std::uint64_t now_ns);
  void reclassify(OfReactor& of, std::uint32_t number, std::uint64_t now_ns);
  void want(std::uint32_t reactor, const GrantChange& change);

  segment::Layout& layout_;
  CreditSettings settings_;
  std::vector<OfReactor> reactors_;
  std::uint32_t next_ = 0;      ///< next reactor of this round; the number of reactors between rounds
  std::uint64_t round_ns_ = 0;  ///< start of the round; zero to start another one at the next poll
  std::uint64_t round_took_ns_ = 0;
  bool reclassify_ = false;     ///< set to reclassify all connections from the next round on
  bool reclassifying_ = false;  ///< set while this round reclassifies connections
  CreditStatistics statistics_;
};

}  // namespace sluice::policy
