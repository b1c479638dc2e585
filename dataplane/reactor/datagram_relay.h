// SPDX-License-Identifier: Apache-2.0
//
// Relays management datagrams between a device without a connection manager and the control plane, for
// PlaneConnector. Called on the reactor's thread.
#pragma once

#include <cstddef>

#include "dataplane/reactor/counters.h"
#include "dataplane/segment/segment.h"
#include "pmd/device.h"

namespace sluice::reactor {

inline constexpr std::size_t kDatagramsPerPass = 8;  ///< in each direction

class DatagramRelay {
 public:
  /// All arguments must outlive the relay.
  DatagramRelay(rdma::Device& device, segment::ReactorArea& area, Counters& counters)
      : device_(device), area_(area), counters_(counters) {}

  /// Relays datagrams in both directions without interpreting them. Datagrams that find no room in the ring
  /// to the control plane stay in the device; lost ones are counted, and peers retransmit them. Returns true
  /// if there were any.
  bool poll() noexcept;

 private:
  rdma::Device& device_;
  segment::ReactorArea& area_;
  Counters& counters_;
};

}  // namespace sluice::reactor
