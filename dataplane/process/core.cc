// SPDX-License-Identifier: Apache-2.0
#include "dataplane/process/core.h"

#include "dataplane/process/settings.h"

namespace sluice::process {

Core::Core(const segment::ConfigBlock& config, std::uint32_t number, Devices& devices, const Shared& shared,
           segment::Layout& layout, Clock clock)
    : device(devices.make_device(config, number)),
      engine(*device, engine_config(config)),
      credits(engine.connection_count()),
      reactor(reactor_config(config, number), engine, layout, clock) {
  segment::ReactorArea& area = layout.reactors[number];
  engine.add_service(null);
  for (const std::uint16_t port : config.listen_ports())
    if (config.services_at(port) != 0) engine.add_service(null, port);
  if (config.upstream_count > 0) {
    forward::UpstreamsConfig settings =
        upstreams_config(config, area, layout.upstream_addresses, shared.caches);
    settings.ports = &engine.service_ports();
    upstreams = std::make_unique<forward::Upstreams>(*device, credits, settings, clock);
    for (const auto& [service, port] : upstreams->services()) engine.add_service(*service, port);
    reactor.add_poller(*upstreams);
  }
  for (RelaySetup& setup : relays_config(config, area, layout.upstream_addresses)) {
    if (setup.listen_port == service::kNoPort) setup.config.ports = &engine.service_ports();
    relays.push_back(
        std::make_unique<relay::Relay>(engine, reactor.dialer(), credits, setup.config, *setup.area, clock));
    for (const auto& service : relays.back()->services()) engine.add_service(*service, setup.listen_port);
    reactor.add_poller(*relays.back());
  }
  if (shared.listener != nullptr) {
    ingress = std::make_unique<ingress::Ingress>(engine, reactor.dialer(), *shared.listener,
                                                 ingress_config(config), area.ingress, clock);
    reactor.add_poller(*ingress);
  }
  for (const std::uint16_t port : config.listen_ports()) reactor.listen(port);
}

forward::UpstreamPlace* Core::place(std::uint32_t upstream) const noexcept {
  for (const auto& relay : relays)
    if (relay->number() == upstream) return relay->place();
  return upstreams ? upstreams->place(upstream) : nullptr;
}

}  // namespace sluice::process
