// SPDX-License-Identifier: Apache-2.0
//
// Received management datagrams that wait for the control plane, with a share per source: a host that sends as many as it can has
// only its own dropped. One thread.
#pragma once

#include <cstddef>
#include <span>

#include "dataplane/base/fixed_ring.h"
#include "pmd/datagram.h"

namespace sluice::rdma::softroce {

class DatagramQueue {
 public:
  static constexpr std::size_t kCapacity = 64;
  static constexpr std::size_t kMostOfSource = kCapacity / 4;

  /// Returns whether a datagram of the source would be taken. Linear in the datagrams that wait.
  bool has_room_for(const PeerAddress& source) noexcept {
    if (waiting_.full()) return false;
    std::size_t of_source = 0;
    for (std::size_t i = 0; i < waiting_.size() && of_source < kMostOfSource; ++i)
      of_source += waiting_[i].remote == source;
    return of_source < kMostOfSource;
  }
  /// Precondition: has_room_for(datagram.remote).
  void add(const Datagram& datagram) noexcept { waiting_.push_back(datagram); }
  std::size_t take(std::span<Datagram> into) noexcept { return waiting_.pop_front(into); }

 private:
  FixedRing<Datagram> waiting_{kCapacity};
};

}  // namespace sluice::rdma::softroce
