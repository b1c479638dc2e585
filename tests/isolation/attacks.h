// SPDX-License-Identifier: Apache-2.0
//
// Attacks of hostile peers: one list for the tests, which count iterations, and for the benchmark, which
// measures time.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "tests/isolation/site.h"

namespace sluice::isolation {

struct Attack {
  const char* name;
  void (*step)(Peer&);      ///< one iteration of one peer
  bool receives = true;     ///< the peer posts Receives
  bool ends = false;        ///< the peer holds resources, so the server ends its connection
  bool hold_calls = false;  ///< the peer has to authenticate before calls are served
  bool callers = false;     ///< the server may call the peer back
};

std::span<const Attack> attacks();

/// One peer for each connection that the server accepts beside its one good client, all with the same attack.
class Attackers {
 public:
  Attackers(Site& site, const Attack& attack);

  /// Runs one iteration of each peer.
  void turn();
  /// Destroys all peers.
  void leave() { peers_.clear(); }

 private:
  const Attack& attack_;
  std::vector<std::unique_ptr<Peer>> peers_;
};

}  // namespace sluice::isolation
