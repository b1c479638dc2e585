// SPDX-License-Identifier: Apache-2.0
//
// Table of the clients that are shown by name. It has a small number of entries for the clients that have
// been the busiest for a while, and one entry for the sum of all others. Memory is bounded, independent of
// the number of clients. No published count ever decreases: a client's counts start from zero when it gets an
// entry, and its earlier counts stay with the others. No I/O; single-threaded.
#pragma once

#include <array>
#include <cstddef>
#include <unordered_map>

#include "dataplane/base/net_address.h"
#include "dataplane/segment/control_tables.h"

namespace sluice::clients {

/// Limit of tracked clients without an entry. Further clients only count towards the sum of the others.
inline constexpr std::size_t kMaxCandidates = 1024;

class ServedClients {
 public:
  void add(const PeerAddress& peer, const segment::ServedCalls& served);
  /// Ends an interval: assigns all free entries, or replaces one entry whose client is less than half as busy
  /// as a candidate, and then halves the activity of all clients.
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
  std::array<double, segment::kClientsShown> recent_{};  ///< decayed call counts, by table entry
  Candidates candidates_;                                ///< decayed call counts of other clients
};

}  // namespace sluice::clients
