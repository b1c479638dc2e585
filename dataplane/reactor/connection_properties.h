// SPDX-License-Identifier: Apache-2.0
//
// Connects the connections of a reactor to its property relay. Sets of properties are sent to the control
// plane with the connection's incarnation, and its answers reach only the connection they are meant for.
// Called on the reactor's thread.
#pragma once

#include <cstddef>
#include <span>

#include "dataplane/reactor/connection_table.h"
#include "dataplane/reactor/property_relay.h"

namespace sluice::reactor {

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
