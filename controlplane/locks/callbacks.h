// SPDX-License-Identifier: Apache-2.0
//
// Calls to RPC programs on client hosts. Each call is sent from the local address that the client knows,
// because Linux accepts a GRANTED from no other address. Single-threaded; runs on the lock proxy's thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <tuple>

#include "controlplane/locks/courier.h"

namespace sluice::locks {

/// Limit of client programs with calls in progress or within the last kIdleCalleeNs.
inline constexpr std::size_t kMaxCallees = 256;
inline constexpr std::uint64_t kIdleCalleeNs = 30'000'000'000;

class Callbacks {
 public:
  explicit Callbacks(LockStatistics& statistics) : statistics_(statistics) {}

  /// Sends a call as Courier::send() does. Returns false if there are too many callees.
  bool call(const Destination& to, Bytes message, std::uint64_t now_ns, std::uint64_t deadline_ns,
            Courier::Done done);
  std::size_t callees() const { return callees_.size(); }
  void prepare(mount::PollSet& set);
  void poll(const mount::PollSet& set, std::uint64_t now_ns);

 private:
  struct Callee {
    Callee(const Destination& to, LockStatistics& statistics) : courier(to, statistics) {}
    Courier courier;
    std::uint64_t used_ns = 0;
  };
  using Key = std::tuple<PeerAddress, PeerAddress, std::uint32_t>;

  LockStatistics& statistics_;
  bool in_turn_ = false;  ///< while true, no callee may be erased
  std::map<Key, Callee> callees_;
};

}  // namespace sluice::locks
