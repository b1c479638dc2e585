// SPDX-License-Identifier: Apache-2.0
//
// Calls over UDP. A reply leaves from the address that the call was sent to. One thread, the service's.
#pragma once

#include <cstddef>
#include <cstdint>

#include "controlplane/mount/call_handler.h"
#include "controlplane/mount/poll_set.h"
#include "controlplane/mount/statistics.h"

namespace sluice::mount {

/// Longest reply. Who wants a longer list has TCP.
inline constexpr std::size_t kMaxDatagramBytes = 8192;
/// Longest call: what is longer is cut off, and then has a defect.
inline constexpr std::size_t kMaxDatagramCallBytes = 8192;
inline constexpr int kDatagramsPerTurn = 16;

class Datagrams {
 public:
  /// A bound, non-blocking socket of `family`, which stays the caller's. Both others outlive it too.
  Datagrams(int socket, int family, CallHandler& handler);

  void prepare(PollSet& set) { place_ = set.add(socket_, POLLIN); }
  void turn(const PollSet& set, std::uint64_t now_ns);

 private:
  bool receive(std::uint64_t now_ns);

  const int socket_;
  CallHandler& handler_;
  std::size_t place_ = PollSet::kNowhere;
};

}  // namespace sluice::mount
