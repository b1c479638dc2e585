// SPDX-License-Identifier: Apache-2.0
//
// What onlookers see of a reactor: its counters, state and connections in the segment. The reactor's thread
// is the only writer; readers never hold it up.
#pragma once

#include <cstdint>
#include <vector>

#include "dataplane/reactor/config.h"
#include "dataplane/reactor/connection_table.h"
#include "dataplane/reactor/counters.h"
#include "dataplane/segment/segment.h"

namespace sluice::reactor {

class Publisher {
 public:
  /// Setup. Clears what a predecessor left in the area and shows the state Starting. Everything given
  /// outlives the publisher.
  Publisher(const ReactorConfig& config, rpcrdma::Engine& engine, ConnectionTable& connections,
            const Counters& counters, segment::ReactorArea& area);

  /// Setup. It holds something for clients, which counts as theirs. Outlives the publisher.
  void add_poller(const service::Poller& poller) { pollers_.push_back(&poller); }

  /// Counters of the transport, the reactor and the device, slot states, and the reactor's own entry.
  void publish_reactor() noexcept;
  /// The last of all: the loop has ended.
  void publish_stopped() noexcept;
  /// The connection's entry in the connection table, its use included.
  void publish_connection(rpcrdma::Connection& connection) noexcept;
  /// Load of a connection: calls, credits, busy slots.
  void publish_use(rpcrdma::Connection& connection) noexcept;
  /// The version of a connection and version 2's properties settle with the client's first messages:
  /// publishes the entry when that has changed.
  void publish_negotiation(rpcrdma::Connection& connection) noexcept;

 private:
  void publish_counters() noexcept;
  void publish_pools() noexcept;
  void publish_peak(rpcrdma::Connection& connection, segment::ConnectionUse& use) noexcept;
  void publish_info(segment::ReactorState state, std::uint32_t connections) noexcept;

  const ReactorConfig config_;
  rpcrdma::Engine& engine_;
  ConnectionTable& connections_;
  const Counters& counters_;
  segment::ReactorArea& area_;
  std::vector<const service::Poller*> pollers_;
  const std::uint64_t started_ns_;  ///< wall clock
};

}  // namespace sluice::reactor
