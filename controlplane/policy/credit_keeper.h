// SPDX-License-Identifier: Apache-2.0
//
// Runs the credit policy on the shared segment: reads from the connection tables which clients are connected
// and how much each uses, and writes the grants that change as what is wanted (dataplane/segment/wanted.h). All of its
// state follows from the segment, so that a new control plane can take over. One thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "controlplane/policy/credit_policy.h"
#include "controlplane/policy/credit_settings.h"
#include "dataplane/base/net_address.h"

namespace sluice::segment {
struct Layout;
}

namespace sluice::policy {

struct CreditStatistics {
  std::uint64_t recomputations = 0;         ///< rounds
  std::uint64_t last_recomputation_ns = 0;  ///< how long it took, for all reactors
  std::uint64_t changes = 0;                ///< grants that were changed
};

class CreditKeeper {
 public:
  /// `layout` outlives the keeper.
  CreditKeeper(segment::Layout& layout, CreditSettings settings);

  /// Takes effect at the next poll(). The numbers of reactors and of connections cannot change.
  void reconfigure(CreditSettings settings);
  struct Start {
    std::uint32_t client_class = 0;
    std::uint32_t credits = 0;
  };
  /// Class and first grant of a new connection of this client.
  Start start_of(std::uint32_t reactor, const PeerAddress& client) const;

  /// Recomputes the grants of one reactor, of the next in each call, until a round of all is done; the next round begins
  /// when the interval is over. So no pass of the loop takes longer than one reactor does. `now_ns` is
  /// segment::monotonic_ns().
  void poll(std::uint64_t now_ns);
  const CreditStatistics& statistics() const { return statistics_; }
  const CreditPolicy& policy(std::uint32_t reactor) const { return reactors_[reactor].policy; }

 private:
  struct Seen {
    std::uint32_t sequence = 0;  ///< of the table's entry
    bool open = false;
    std::uint32_t incarnation = 0;
    std::uint32_t client_class = 0;
    std::string host;  ///< empty: not authenticated
    PeerAddress peer;
  };
  struct OfReactor {
    OfReactor(const CreditLimits& limits, std::uint32_t connections)
        : policy(limits, connections), seen(connections) {}
    CreditPolicy policy;
    std::vector<Seen> seen;  ///< by number of the connection
  };
  void recompute(std::uint32_t reactor, std::uint64_t now_ns);
  /// By its host if that is authenticated and has a class, else by its address.
  std::uint32_t class_of_connection(const Seen& seen) const;
  void observe(std::uint32_t reactor, std::uint64_t now_ns);
  bool read_entry(std::uint32_t reactor, std::uint32_t number, std::uint64_t now_ns);
  void reclassify(OfReactor& of, std::uint32_t number, std::uint64_t now_ns);
  void want(std::uint32_t reactor, const GrantChange& change);

  segment::Layout& layout_;
  CreditSettings settings_;
  std::vector<OfReactor> reactors_;
  std::uint32_t next_ = 0;      ///< reactor of this round; as many as there are: the round is done
  std::uint64_t round_ns_ = 0;  ///< when it began; zero: begin another at the next poll
  std::uint64_t round_took_ns_ = 0;
  bool reclassify_ = false;     ///< from the next round on
  bool reclassifying_ = false;  ///< in this round
  CreditStatistics statistics_;
};

}  // namespace sluice::policy
