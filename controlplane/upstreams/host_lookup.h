// SPDX-License-Identifier: Apache-2.0
//
// Asynchronous resolution of host names. Lookups run on the threads of an arena, so that a slow name server
// delays no other lookup.
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
  std::string problem;  ///< clause that describes the failure, if there are no addresses
};
/// Resolves a host name. May block without limit; any thread. It must not refer to data that may be destroyed
/// before the process ends.
using LookUp = Function<LookupResult(const std::string& host)>;

/// Resolves a name for TCP with the system's resolver, getaddrinfo().
LookupResult look_up(const std::string& host);

/// One lookup at a time, on the thread of the arena's loop. If this object is destroyed, a waiting lookup is
/// not started and the result of a running one is dropped.
class HostLookup {
 public:
  /// Starts a lookup. Must not be called while running(). Returns false if the arena is full.
  [[nodiscard]] bool begin(tasks::Arena& arena, const LookUp& look_up, const std::string& host);
  /// Returns true if a lookup was started and its result has not been taken.
  bool running() const { return pending_ != nullptr; }
  /// Returns the result once there is one.
  std::optional<LookupResult> take();

 private:
  using Pending = std::optional<LookupResult>;
  std::shared_ptr<Pending> pending_;  ///< the task holds a weak reference, which expires with this object
};

}  // namespace sluice::upstreams
