// SPDX-License-Identifier: Apache-2.0
//
// Version 2 transport properties of a reactor's connections: sets that peers announce go to the control
// plane, which validates them, and its answers go back to the connections. Called on the reactor's thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "dataplane/base/fixed_containers.h"
#include "dataplane/reactor/connection_table.h"
#include "dataplane/rpcrdma/link/config.h"
#include "dataplane/segment/segment.h"

namespace sluice::reactor {

/// Relays sets of version 2 transport properties between a reactor's connections and the control plane. A set
/// is longer than a slot of a ring, so it is sent in parts.
class PropertyRelay {
 public:
  /// Maximum sets being sent to the control plane. Further sets wait in their connections.
  static constexpr std::size_t kOutboxes = 4;
  static constexpr std::size_t kPartsPerTurn = 16;

  explicit PropertyRelay(segment::ReactorArea& area);

  /// Property sink of a connection. Returns false if no outbox is free.
  bool take(std::uint16_t connection, std::uint32_t incarnation, std::span<const std::byte> body,
            bool first) noexcept;
  /// Moves parts in both directions. Complete sets from the control plane are passed to `deliver`, which
  /// returns true if it has accepted the set. Returns true if any part was moved.
  template <typename Deliver>
  bool poll(Deliver&& deliver) noexcept {
    bool any = push_parts();
    for (std::size_t i = 0; i < kPartsPerTurn; ++i) {
      if (whole_) {
        if (!deliver(inbox_.connection, inbox_.incarnation, std::span(inbox_.octets).first(inbox_.bytes)))
          break;
        whole_ = false;
      }
      if (!pop_part()) break;
      any = true;
    }
    return any;
  }

 private:
  struct Box {
    std::uint16_t connection = 0;
    std::uint32_t incarnation = 0;
    bool first = false;
    std::uint32_t bytes = 0;
    std::uint32_t sent = 0;
    std::vector<std::byte> octets;
  };
  bool push_parts() noexcept;
  bool pop_part() noexcept;

  segment::ReactorArea& area_;
  std::array<Box, kOutboxes> outboxes_;
  FixedStack<Box*> free_{kOutboxes};
  FixedRing<Box*> sending_{kOutboxes};
  Box inbox_;
  bool whole_ = false;
};

/// Connects the connections of a reactor to its property relay. Sets of properties are sent to the control
/// plane with the connection's incarnation, and its answers reach only the connection they are meant for.
class ConnectionProperties {
 public:
  /// Both arguments must outlive the object.
  ConnectionProperties(segment::ReactorArea& area, ConnectionTable& connections)
      : connections_(connections), relay_(area) {}
  ConnectionProperties(const ConnectionProperties&) = delete;
  ConnectionProperties& operator=(const ConnectionProperties&) = delete;

  /// Lets the control plane validate the properties that this connection's peer announces. Otherwise the
  /// connection applies them itself.
  void attach(rpcrdma::Connection& connection) noexcept {
    connection.set_property_sink(&on_properties, this);
  }
  /// Performs a bounded amount of work in both directions. Returns true if there was any.
  bool poll() noexcept;

 private:
  static bool on_properties(void* self, rpcrdma::Connection& connection, std::span<const std::byte> body,
                            bool first) noexcept;

  ConnectionTable& connections_;
  PropertyRelay relay_;
};

}  // namespace sluice::reactor
