// SPDX-License-Identifier: Apache-2.0
//
// Sums up by client what the connections of all reactors show to have been served, and publishes the busiest clients. What a
// connection was served after the last look at it, and before another one came in its place, is not counted. A round over all
// connections begins each second. It is spread over iterations of the loop. The control plane's thread, in a turn.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "controlplane/clients/busiest.h"
#include "controlplane/clients/client_book.h"
#include "dataplane/segment/client_table.h"

namespace sluice::segment {
struct Layout;
}

namespace sluice::clients {

/// Connections that poll() looks at. A look takes up to 1 us.
inline constexpr std::uint32_t kLookedPerPoll = 2048;

class ClientWatch {
 public:
  /// `layout` outlives it. Begins with what is shown from now on.
  ClientWatch(segment::Layout& layout, std::uint32_t reactors, std::uint32_t connections);

  /// Continues the round, or begins one a second after the last one began.
  void poll(std::uint64_t now_ns);
  /// Returns the last complete round.
  const Round& last_round() const { return last_round_; }
  /// Connections that the last poll() has looked at.
  std::uint32_t looked() const { return looked_; }

 private:
  struct Seen {
    std::uint32_t incarnation = 0;
    segment::ServedCalls served;
  };
  void look(std::uint32_t reactor, std::uint32_t number, bool counts);
  void end_round();

  segment::Layout& layout_;
  const std::uint32_t reactors_;
  const std::uint32_t connections_;
  std::vector<Seen> seen_;
  ClientBook book_;
  RoundSums sums_;
  Round last_round_;
  std::size_t next_;  ///< connection to look at, of all reactors; seen_.size(): no round is under way
  std::uint64_t round_ns_ = 0;       ///< begin of this round
  std::uint64_t last_round_ns_ = 0;  ///< begin of the round before
  std::uint32_t looked_ = 0;
  std::uint32_t rounds_ = 0;
};

}  // namespace sluice::clients
