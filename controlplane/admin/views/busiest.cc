// SPDX-License-Identifier: Apache-2.0
#include "controlplane/admin/views/busiest.h"

#include <algorithm>
#include <span>

#include "dataplane/base/net_address.h"

namespace sluice::admin {
namespace {

double per_second(std::uint64_t calls, const clients::Round& round) {
  return round.interval_ns == 0 ? 0
                                : static_cast<double>(calls) * 1e9 / static_cast<double>(round.interval_ns);
}

Json describe(const clients::BusyConnection& connection, const clients::Round& round,
              const config::Config& config) {
  const std::size_t client_class =
      connection.client_class < config.classes.size() ? connection.client_class : 0;
  return {{"reactor", connection.reactor},
          {"connection", connection.number},
          {"peer", to_string(connection.peer)},
          {"class", config.classes[client_class].name},
          {"credits", connection.granted},
          {"busy", connection.busy},
          {"calls_per_s", per_second(connection.calls, round)}};
}

Json describe(const clients::BusyClient& client, const clients::Round& round, const config::Config&) {
  return {{"peer", to_string(client.peer)},
          {"connections", client.connections},
          {"credits", client.granted},
          {"busy", client.busy},
          {"calls_per_s", per_second(client.calls, round)}};
}

template <typename Busy>
Json first_of(const std::vector<Busy>& all, std::uint32_t count, const clients::Round& round,
              const config::Config& config) {
  Json rows = Json::array();
  for (const Busy& one : std::span(all).first(std::min<std::size_t>(count, all.size())))
    rows.push_back(describe(one, round, config));
  return rows;
}

}  // namespace

Json busiest(const clients::Round& round, const config::Config& config, std::uint32_t count) {
  return {{"interval_s", static_cast<double>(round.interval_ns) * 1e-9},
          {"open", round.connections},
          {"credits", round.granted},
          {"busy", round.busy},
          {"calls_per_s", per_second(round.calls, round)},
          {"connections", first_of(round.busiest, count, round, config)},
          {"clients", first_of(round.clients, count, round, config)}};
}

}  // namespace sluice::admin
