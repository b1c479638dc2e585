// SPDX-License-Identifier: Apache-2.0
//
// What hostile peers do. One list for the tests, which count turns, and for the benchmark,
// which measures time.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "tests/isolation/site.h"

namespace sluice::isolation {

struct Attack {
  const char* name;
  void (*step)(Peer&);      ///< what one peer does in a turn
  bool receives = true;     ///< it posts Receives
  bool ends = false;        ///< it holds something: its connection is ended, though it never ends itself
  bool hold_calls = false;  ///< it has to show who it is before calls are served
  bool callers = false;     ///< the server may call it back
};

std::span<const Attack> attacks();

/// As many peers as the server takes beside its one good client, all with the same intent.
class Attackers {
 public:
  Attackers(Site& site, const Attack& attack);

  /// One turn of each.
  void turn();
  /// They are gone.
  void leave() { peers_.clear(); }

 private:
  const Attack& attack_;
  std::vector<std::unique_ptr<Peer>> peers_;
};

}  // namespace sluice::isolation
