// SPDX-License-Identifier: Apache-2.0
//
// Management datagrams between a device without a connection manager and the control plane, for PlaneConnector.
// The reactor's thread.
#pragma once

#include <cstddef>

#include "dataplane/reactor/counters.h"
#include "dataplane/segment/segment.h"
#include "pmd/device.h"

namespace sluice::reactor {

inline constexpr std::size_t kDatagramsPerPass = 8;  ///< in each direction

class DatagramRelay {
 public:
  /// All outlive the relay.
  DatagramRelay(rdma::Device& device, segment::ReactorArea& area, Counters& counters)
      : device_(device), area_(area), counters_(counters) {}

  /// Passes datagrams on uninterpreted, both ways. What the control plane has no room for is lost and
  /// counted, as on the wire: peers repeat their requests. True when there was something.
  bool poll() noexcept;

 private:
  rdma::Device& device_;
  segment::ReactorArea& area_;
  Counters& counters_;
};

}  // namespace sluice::reactor
