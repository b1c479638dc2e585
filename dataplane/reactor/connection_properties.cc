// SPDX-License-Identifier: Apache-2.0
#include "dataplane/reactor/connection_properties.h"

namespace sluice::reactor {

bool ConnectionProperties::poll() noexcept {
  return relay_.poll(
      [this](std::uint16_t number, std::uint32_t incarnation, std::span<const std::byte> octets) {
        rpcrdma::Connection* const connection = connections_.find(number, incarnation);
        return connection == nullptr || connection->send_host_authentication(octets);
      });
}

bool ConnectionProperties::on_properties(void* self, rpcrdma::Connection& connection,
                                         std::span<const std::byte> body, bool first) noexcept {
  auto& properties = *static_cast<ConnectionProperties*>(self);
  const std::uint32_t incarnation = properties.connections_.record(connection).incarnation;
  return properties.relay_.take(connection.number(), incarnation, body, first);
}

}  // namespace sluice::reactor
