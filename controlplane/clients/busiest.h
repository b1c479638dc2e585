// SPDX-License-Identifier: Apache-2.0
//
// The busiest connections and clients of one round over all connections, and sums over all connections of
// clients. The constants below bound the memory, independent of the number of connections. No I/O;
// single-threaded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "dataplane/base/net_address.h"

namespace sluice::clients {

/// Number of connections and of clients that a round keeps.
inline constexpr std::size_t kBusiestKept = 64;
/// Limit of clients with calls in a round that are counted separately. Calls of further clients are in the
/// sums only.
inline constexpr std::size_t kMaxClientsOfRound = 4096;

struct BusyConnection {
  std::uint32_t reactor = 0;
  std::uint32_t number = 0;
  PeerAddress peer{};
  std::uint32_t client_class = 0;
  std::uint32_t granted = 0;  ///< credits
  std::uint32_t busy = 0;     ///< calls in progress
  std::uint64_t calls = 0;    ///< calls answered since the previous round
};

/// Sum over the connections of one address that had calls in the round.
struct BusyClient {
  PeerAddress peer{};
  std::uint64_t connections = 0;
  std::uint64_t granted = 0;
  std::uint64_t busy = 0;
  std::uint64_t calls = 0;
};

/// A complete round. All fields are zero before the first round.
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
  void add_busy(const BusyConnection& connection);
  /// Returns the complete round and begins the next one.
  Round end(std::uint64_t interval_ns);

 private:
  struct Hash {
    std::size_t operator()(const PeerAddress& peer) const noexcept {
      std::size_t hash = 14695981039346656037u;  // FNV-1a
      for (const auto byte : peer.bytes) hash = (hash ^ static_cast<std::size_t>(byte)) * 1099511628211u;
      return hash;
    }
  };

  void keep(const BusyConnection& connection);

  Round round_;
  std::unordered_map<PeerAddress, BusyClient, Hash> clients_;
};

}  // namespace sluice::clients
