// SPDX-License-Identifier: Apache-2.0
//
// Which clients are shown by name: a few, that have been the busiest for a while, and all others together. However many
// clients come, what is kept of them is bounded, and no count that is shown ever decreases: a client's begins with zero when
// it gets a place, and what it did before stays with the others. Arithmetic alone; one thread.
#pragma once

#include <array>
#include <cstddef>
#include <unordered_map>

#include "dataplane/base/net_address.h"
#include "dataplane/segment/client_table.h"

namespace sluice::clients {

/// Clients without a place that are watched; while there are so many, further ones are only counted.
inline constexpr std::size_t kMaxCandidates = 1024;

class ClientBook {
 public:
  void add(const PeerAddress& peer, const segment::ServedCalls& served);
  /// At the end of each interval: forgets half of what was, and gives one place to a candidate that is twice as busy as
  /// whoever has it, or all that are free.
  void end_interval();

  const segment::ClientTable& table() const { return table_; }
  std::size_t candidates() const { return candidates_.size(); }

 private:
  struct Hash {
    std::size_t operator()(const PeerAddress& peer) const noexcept;
  };
  using Candidates = std::unordered_map<PeerAddress, double, Hash>;

  std::size_t place_of(const PeerAddress& peer) const;
  std::size_t least_busy() const;
  bool give_place();

  segment::ClientTable table_;
  std::array<double, segment::kClientsShown> recent_{};  ///< calls of late, of those with a place
  Candidates candidates_;                                ///< the same, of those without
};

}  // namespace sluice::clients
