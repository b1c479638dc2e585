// SPDX-License-Identifier: Apache-2.0
//
// Connections of a connection manager, from the request on, with the number of connections per reactor.
// Lookups use a hash table, so their cost does not depend on the number of connections. Single-threaded.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <utility>

#include "controlplane/cm/connection_state.h"
#include "dataplane/segment/tables.h"

namespace sluice::cm {

/// A known connection. `reactor`, `outgoing` and the queue pair number of an outgoing connection are
/// constant.
struct Known {
  std::uint32_t reactor = 0;
  bool made = false;  ///< the data plane has its queue pair
  bool outgoing = false;
  std::uint32_t connection = 0;   ///< set if outgoing or made
  std::uint32_t incarnation = 0;  ///< set if outgoing or made
  PeerAddress peer;
  OwnParameters own;
};

class KnownConnections {
 public:
  using Map = std::unordered_map<Id, Known>;
  using iterator = Map::iterator;

  /// Reserves space for `most` connections, because growing the table would move all entries in one iteration
  /// of the loop.
  explicit KnownConnections(std::size_t most = 0) { known_.reserve(most); }

  iterator begin() { return known_.begin(); }
  iterator end() { return known_.end(); }
  iterator find(Id id) { return known_.find(id); }
  bool contains(Id id) const { return known_.count(id) != 0; }

  /// Adds a connection, and replaces another one with this identifier.
  void put(Id id, Known known) {
    erase(id);
    ++load_[known.reactor];
    if (known.outgoing) dialed_[key(known.reactor, known.own.qpn)] = id;
    known_.emplace(id, std::move(known));
  }
  iterator erase(iterator at) {
    const Known& known = at->second;
    --load_[known.reactor];
    if (known.outgoing) {
      const auto dialed = dialed_.find(key(known.reactor, known.own.qpn));
      if (dialed != dialed_.end() && dialed->second == at->first) dialed_.erase(dialed);
    }
    return known_.erase(at);
  }
  /// Removes a connection. Has no effect if it is unknown.
  void erase(Id id) {
    if (const auto at = known_.find(id); at != known_.end()) erase(at);
  }

  /// Returns the number of connections of a reactor.
  std::uint32_t load(std::uint32_t reactor) const { return load_[reactor]; }
  /// Returns the outgoing connection of a queue pair.
  std::optional<Id> dialed(std::uint32_t reactor, std::uint32_t queue_pair) const {
    const auto at = dialed_.find(key(reactor, queue_pair));
    if (at == dialed_.end()) return std::nullopt;
    return at->second;
  }

 private:
  static std::uint64_t key(std::uint32_t reactor, std::uint32_t queue_pair) {
    return std::uint64_t{reactor} << 32 | queue_pair;
  }

  Map known_;
  std::unordered_map<std::uint64_t, Id> dialed_;
  std::array<std::uint32_t, segment::kMaxReactors> load_{};
};

}  // namespace sluice::cm
