// SPDX-License-Identifier: Apache-2.0
//
// Sums up per client what the connections of all reactors have served, and publishes the busiest clients.
// Calls that a connection serves after its last sample and before another connection reuses its table entry
// are not counted. A round over all connections begins each second and is spread over iterations of the loop.
// Runs on the control plane's thread, which must hold the right to write the segment.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "controlplane/clients/busiest.h"
#include "controlplane/clients/served_clients.h"
#include "dataplane/segment/control_tables.h"

namespace sluice::segment {
struct Layout;
}

namespace sluice::clients {

/// Connections that one poll() samples. A sample takes up to 1 us.
inline constexpr std::uint32_t kLookedPerPoll = 2048;

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

}  // namespace sluice::clients
