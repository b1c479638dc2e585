// SPDX-License-Identifier: Apache-2.0
//
// Binds the connections of a reactor to its property relay: sets of properties go up under the connection's
// incarnation, and what the control plane answers reaches only the connection it was meant
// for. The reactor's thread.
#pragma once

#include <cstddef>
#include <span>

#include "dataplane/reactor/connection_table.h"
#include "dataplane/reactor/property_relay.h"

namespace sluice::reactor {

class ConnectionProperties {
 public:
  /// Both outlive it.
  ConnectionProperties(segment::ReactorArea& area, ConnectionTable& connections)
      : connections_(connections), relay_(area) {}
  ConnectionProperties(const ConnectionProperties&) = delete;
  ConnectionProperties& operator=(const ConnectionProperties&) = delete;

  /// From here on the control plane judges what this connection's peer announces. Without it the connection
  /// applies the peer's properties itself.
  void attach(rpcrdma::Connection& connection) noexcept {
    connection.set_property_sink(&on_properties, this);
  }
  /// A bounded slice in both directions. True when there was something.
  bool poll() noexcept;

 private:
  static bool on_properties(void* self, rpcrdma::Connection& connection, std::span<const std::byte> body,
                            bool first) noexcept;

  ConnectionTable& connections_;
  PropertyRelay relay_;
};

}  // namespace sluice::reactor
