// SPDX-License-Identifier: Apache-2.0
//
// The busiest connections and clients of one round over all connections, and sums over all connections of clients. Memory is
// bounded by the constants below, however many connections there are. Arithmetic alone; one thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

#include "dataplane/base/net_address.h"

namespace sluice::clients {

/// Connections, and clients, that a round keeps.
inline constexpr std::size_t kBusiestKept = 64;
/// Clients with calls in a round that are counted separately. Calls of further clients are in the sums only.
inline constexpr std::size_t kMaxClientsOfRound = 4096;

struct BusyConnection {
  std::uint32_t reactor = 0;
  std::uint32_t number = 0;
  PeerAddress peer{};
  std::uint32_t client_class = 0;
  std::uint32_t granted = 0;  ///< credits
  std::uint32_t busy = 0;     ///< calls in progress
  std::uint64_t calls = 0;    ///< calls answered since the round before
};

/// Connections of one address that had calls in the round, together.
struct BusyClient {
  PeerAddress peer{};
  std::uint64_t connections = 0;
  std::uint64_t granted = 0;
  std::uint64_t busy = 0;
  std::uint64_t calls = 0;
};

/// A complete round. Before the first one, everything is zero.
struct Round {
  std::uint64_t interval_ns = 0;  ///< time in which the calls were answered
  std::uint64_t connections = 0;
  std::uint64_t granted = 0;
  std::uint64_t busy = 0;
  std::uint64_t calls = 0;
  std::vector<BusyConnection> busiest{};  ///< the busiest first
  std::vector<BusyClient> clients{};      ///< the busiest first
};

class RoundSums {
 public:
  /// Adds an open connection of a client to the sums.
  void add_open(std::uint32_t granted, std::uint32_t busy) {
    ++round_.connections;
    round_.granted += granted;
    round_.busy += busy;
  }
  /// Adds a connection that had calls, which add_open() has counted already.
  void add_busy(const BusyConnection& connection) {
    round_.calls += connection.calls;
    keep(connection);
    auto client = clients_.find(connection.peer);
    if (client == clients_.end()) {
      if (clients_.size() == kMaxClientsOfRound) return;
      client = clients_.emplace(connection.peer, BusyClient{.peer = connection.peer}).first;
    }
    ++client->second.connections;
    client->second.granted += connection.granted;
    client->second.busy += connection.busy;
    client->second.calls += connection.calls;
  }
  /// Returns the complete round and begins the next one.
  Round end(std::uint64_t interval_ns) {
    round_.interval_ns = interval_ns;
    std::sort_heap(round_.busiest.begin(), round_.busiest.end(), busier<BusyConnection>);
    for (const auto& [peer, client] : clients_) round_.clients.push_back(client);
    const auto kept =
        round_.clients.begin() + static_cast<std::ptrdiff_t>(std::min(round_.clients.size(), kBusiestKept));
    std::partial_sort(round_.clients.begin(), kept, round_.clients.end(), busier<BusyClient>);
    round_.clients.erase(kept, round_.clients.end());
    clients_.clear();
    return std::exchange(round_, {});
  }

 private:
  struct Hash {
    std::size_t operator()(const PeerAddress& peer) const noexcept {
      std::size_t hash = 14695981039346656037u;  // FNV-1a
      for (const auto byte : peer.bytes) hash = (hash ^ static_cast<std::size_t>(byte)) * 1099511628211u;
      return hash;
    }
  };

  template <typename Busy>
  static bool busier(const Busy& one, const Busy& other) {
    return one.calls > other.calls;
  }
  /// Keeps the busiest ones in a heap whose top is the least busy.
  void keep(const BusyConnection& connection) {
    auto& heap = round_.busiest;
    if (heap.size() == kBusiestKept) {
      if (connection.calls <= heap.front().calls) return;
      std::pop_heap(heap.begin(), heap.end(), busier<BusyConnection>);
      heap.pop_back();
    }
    heap.push_back(connection);
    std::push_heap(heap.begin(), heap.end(), busier<BusyConnection>);
  }

  Round round_;
  std::unordered_map<PeerAddress, BusyClient, Hash> clients_;
};

}  // namespace sluice::clients
