// SPDX-License-Identifier: Apache-2.0
//
// Sums up per client what the connections of all reactors have served, and publishes the busiest clients.
// Calls that a connection serves after its last sample and before another connection reuses its table entry
// are not counted. A round over all connections begins each second and is spread over iterations of the
// loop. The constants bound the memory, independent of the numbers of connections and clients. Runs on the
// control plane's thread, which must hold the right to write the segment.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "controlplane/policy/busiest.h"
#include "dataplane/base/net_address.h"
#include "dataplane/segment/control_tables.h"

namespace sluice::segment {
struct Layout;
}

namespace sluice::policy {

/// Limit of clients with calls in a round that are counted separately. Calls of further clients are in the
/// sums only.
inline constexpr std::size_t kMaxClientsOfRound = 4096;

/// The busiest connections and clients of one round, and sums over all connections. Performs no I/O.
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

/// Limit of tracked clients without an entry. Further clients only count towards the sum of the others.
inline constexpr std::size_t kMaxCandidates = 1024;

/// Table of the clients that are shown by name. It has a small number of entries for the clients that have
/// been the busiest for a while, and one entry for the sum of all others. No published count ever
/// decreases: a client's counts start from zero when it gets an entry, and its earlier counts stay with the
/// others. Performs no I/O.
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

/// Connections that one poll() samples. A sample takes up to 1 us.
inline constexpr std::uint32_t kLookedPerPoll = 2048;

/// Samples the connections of all reactors, a part of them in each iteration of the loop.
class ClientMonitor {
 public:
  /// Samples the current counters as the baseline. `layout` outlives this object.
  ClientMonitor(segment::Layout& layout, std::uint32_t reactors, std::uint32_t connections);

  /// Continues the round, or begins the next one if a second has passed since the last one began.
  void poll(std::uint64_t now_ns);
  /// Returns the last complete round.
  const Round& last_round() const { return last_round_; }
  /// Returns the number of connections that the last poll() sampled.
  std::uint32_t looked() const { return looked_; }

 private:
  struct Seen {
    std::uint32_t incarnation = 0;
    segment::ServedCalls served;
  };
  void sample(std::uint32_t reactor, std::uint32_t number, bool counts);
  void end_round();

  segment::Layout& layout_;
  const std::uint32_t reactors_;
  const std::uint32_t connections_;
  std::vector<Seen> seen_;
  ServedClients book_;
  RoundSums sums_;
  Round last_round_;
  std::size_t next_;            ///< next connection to sample, over all reactors; seen_.size() between rounds
  std::uint64_t round_ns_ = 0;  ///< start of this round
  std::uint64_t last_round_ns_ = 0;  ///< start of the previous round
  std::uint32_t looked_ = 0;
  std::uint32_t rounds_ = 0;
};

}  // namespace sluice::policy
