// SPDX-License-Identifier: Apache-2.0
//
// Calls over UDP. A reply is sent from the address that the call was sent to. Single-threaded; runs on the
// service's thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "controlplane/mount/call_handler.h"
#include "controlplane/mount/poll_set.h"
#include "controlplane/mount/statistics.h"

namespace sluice::mount {

/// Maximum size of a reply. Clients that need a longer list use TCP.
inline constexpr std::size_t kMaxDatagramBytes = 8192;
/// Maximum size of a call. Longer calls are truncated and then fail to decode.
inline constexpr std::size_t kMaxDatagramCallBytes = 8192;
inline constexpr int kDatagramsPerTurn = 16;

class Datagrams {
 public:
  /// Serves `socket`, a bound, non-blocking socket of `family` that the caller keeps ownership of. `socket`
  /// and `handler` outlive this object.
  Datagrams(int socket, int family, CallHandler& handler);

  void prepare(PollSet& set) { place_ = set.add(socket_, POLLIN); }
  void poll(const PollSet& set, std::uint64_t now_ns);

 private:
  bool receive(std::uint64_t now_ns);

  const int socket_;
  CallHandler& handler_;
  std::size_t place_ = PollSet::kNowhere;
};

}  // namespace sluice::mount
