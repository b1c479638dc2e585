// SPDX-License-Identifier: Apache-2.0
//
// Received management datagrams queued for the control plane, with a quota per source, so that a host that
// floods the queue loses only its own datagrams. One thread.
#pragma once

#include <cstddef>
#include <span>

#include "dataplane/base/fixed_containers.h"
#include "dataplane/base/invariant.h"
#include "pmd/datagram.h"

namespace sluice::rdma::softroce {

class DatagramQueue {
 public:
  static constexpr std::size_t kCapacity = 64;
  static constexpr std::size_t kMostOfSource = kCapacity / 4;

  /// Returns whether a datagram of the source would be accepted. Linear in the number of queued datagrams.
  bool has_room_for(const PeerAddress& source) noexcept {
    if (waiting_.full()) return false;
    std::size_t of_source = 0;
    for (std::size_t i = 0; i < waiting_.size() && of_source < kMostOfSource; ++i)
      of_source += waiting_[i].remote == source;
    return of_source < kMostOfSource;
  }
  /// Appends a datagram. Requires has_room_for(datagram.remote).
  void add(const Datagram& datagram) noexcept {
    const bool added = waiting_.push_back(datagram);
    static_cast<void>(SLUICE_INVARIANT(added, ring_index));
  }
  std::size_t take(std::span<Datagram> into) noexcept { return waiting_.pop_front(into); }

 private:
  FixedRing<Datagram> waiting_{kCapacity};
};

}  // namespace sluice::rdma::softroce
