// SPDX-License-Identifier: Apache-2.0
//
// Resolves host names without making its caller wait: in the threads of an arena, so that a name server that is slow with
// some names holds up no other.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "dataplane/base/function.h"
#include "dataplane/base/net_address.h"

namespace sluice::tasks {
class Arena;
}

namespace sluice::upstreams {

struct LookupResult {
  std::vector<PeerAddress> addresses;
  std::string problem;  ///< a clause, if there are no addresses
};
/// Any thread; may take as long as it likes. Refers to nothing that may end before the process.
using LookUp = Function<LookupResult(const std::string& host)>;

/// The system's resolver: getaddrinfo(), for TCP.
LookupResult look_up(const std::string& host);

/// One lookup at a time. One thread, that of the arena's loop. One that nobody waits for any more is not begun, and what it
/// has found is dropped.
class HostLookup {
 public:
  /// Starts; not while running(). False: the arena is full.
  [[nodiscard]] bool begin(tasks::Arena& arena, const LookUp& look_up, const std::string& host);
  /// A result has not been taken yet.
  bool running() const { return pending_ != nullptr; }
  /// None until there is one.
  std::optional<LookupResult> take();

 private:
  using Pending = std::optional<LookupResult>;
  std::shared_ptr<Pending> pending_;  ///< the task looks whether it is still there
};

}  // namespace sluice::upstreams
