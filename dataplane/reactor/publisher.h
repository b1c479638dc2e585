// SPDX-License-Identifier: Apache-2.0
//
// State of a reactor that the control plane reads: its counters, its events, and its own entry and its
// connections in the segment. Used on the reactor's thread, which is the only writer and is never blocked by
// readers.
#pragma once

#include <cstdint>
#include <vector>

#include "dataplane/reactor/config.h"
#include "dataplane/reactor/connection_table.h"
#include "dataplane/segment/counters.h"
#include "dataplane/segment/segment.h"

namespace sluice::reactor {

/// Counters of a reactor (segment/counters.h). Plain words of its thread; the publisher copies them to the
/// segment.
struct Counters {
#define SLUICE_COUNTER_FIELD(name, group, help) std::uint64_t name = 0;
  SLUICE_REACTOR_COUNTERS(SLUICE_COUNTER_FIELD)
#undef SLUICE_COUNTER_FIELD
};

/// Events from one reactor to the control plane. Producer side of ReactorArea::events.
class EventSender {
 public:
  /// Both arguments must outlive the sender.
  EventSender(segment::ReactorArea& area, Counters& counters) : events_(area.events), counters_(counters) {}

  /// Sends a hint, whose content is also in the segment's tables. If there is no room, the hint is dropped
  /// and counted.
  void send(const segment::Event& event) noexcept {
    if (!events_.push(event)) ++counters_.events_lost;
  }
  /// Sends an event that must arrive. Returns false if the ring is full; the caller retries later.
  bool try_send(const segment::Event& event) noexcept { return events_.push(event); }

 private:
  decltype(segment::ReactorArea::events)& events_;
  Counters& counters_;
};

/// Publishes the counters, state and connections of a reactor in the segment.
class Publisher {
 public:
  /// Called at setup. Clears what a predecessor has left in the area and publishes the state Starting. All
  /// arguments must outlive the publisher.
  Publisher(const ReactorConfig& config, rpcrdma::Engine& engine, ConnectionTable& connections,
            const Counters& counters, segment::ReactorArea& area);

  /// Adds a poller at setup whose memory held for clients counts as theirs. It must outlive the publisher.
  void add_poller(const service::Poller& poller) { pollers_.push_back(&poller); }

  /// Publishes counters of the transport, the reactor and the device, slot states, and the reactor's own
  /// entry.
  void publish_reactor() noexcept;
  /// Publishes the state Stopped after the loop has ended. No other publication follows.
  void publish_stopped() noexcept;
  /// Publishes the connection's entry in the connection table, and its use.
  void publish_connection(rpcrdma::Connection& connection) noexcept;
  /// Publishes the load of a connection: calls, credits, busy slots.
  void publish_use(rpcrdma::Connection& connection) noexcept;
  /// Publishes the connection's entry if its version or the version 2 properties have changed, which are
  /// settled by the client's first messages.
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
  const std::uint64_t started_ns_;  ///< wall clock time
};

}  // namespace sluice::reactor
