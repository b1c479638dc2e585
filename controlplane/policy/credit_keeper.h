// SPDX-License-Identifier: Apache-2.0
//
// Credit policy on the living segment: sees who is connected and what they do, and tells the reactors the
// grants that change. Its state follows from the tables, so that any control plane can take over. One thread.
#pragma once

#include <cstdint>
#include <vector>

#include "controlplane/config/config.h"
#include "controlplane/policy/credit_policy.h"
#include "dataplane/segment/segment.h"

namespace sluice::policy {

struct CreditStatistics {
  std::uint64_t recomputations = 0;
  std::uint64_t last_recomputation_ns = 0;  ///< how long it took, for all reactors
  std::uint64_t changes = 0;                ///< grants that were told to a reactor
};

class CreditKeeper {
 public:
  CreditKeeper(segment::Layout& layout, const config::Config& config);

  /// The configuration has changed.
  void reconfigure();
  struct Start {
    std::uint32_t client_class = 0;
    std::uint32_t credits = 0;
  };
  /// What a new connection of this client gets.
  Start start_of(std::uint32_t reactor, const PeerAddress& client) const;

  /// Looks and recomputes when it is time; tells reactors as far as their rings have room.
  void poll(std::uint64_t now_ns);
  const CreditStatistics& statistics() const { return statistics_; }
  const CreditPolicy& policy(std::uint32_t reactor) const { return reactors_[reactor].policy; }

 private:
  struct Seen {
    std::uint32_t sequence = 0;  ///< of the table's entry
    bool open = false;
    std::uint32_t cm_id = 0;
    std::uint32_t client_class = 0;
    PeerAddress peer;
  };
  struct OfReactor {
    OfReactor(const CreditLimits& limits, std::uint32_t connections)
        : policy(limits, connections), seen(connections) {}
    CreditPolicy policy;
    std::vector<Seen> seen;
    std::vector<GrantChange> untold;
    std::size_t told = 0;
  };
  void look(std::uint32_t reactor, std::uint64_t now_ns);
  void tell(std::uint32_t reactor);

  segment::Layout& layout_;
  const config::Config& config_;
  std::vector<OfReactor> reactors_;
  std::uint64_t recomputed_ns_ = 0;
  bool reclassify_ = false;
  CreditStatistics statistics_;
};

}  // namespace sluice::policy
