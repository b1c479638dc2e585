// SPDX-License-Identifier: Apache-2.0
#include "dataplane/service/forward/upstreams.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "dataplane/base/setup_error.h"
#include "dataplane/tcp/sockets.h"
#include "dataplane/ulb/bindings.h"

namespace sluice::forward {
namespace {

/// Fails at setup instead of at the first call.
void check_privilege(const UpstreamConfig& config) {
  if (!config.privileged_port) return;
  const int socket = tcp::connecting_socket(AF_INET, true, tcp::kPeerTimeoutMs);
  if (socket < 0)
    throw SetupError("Upstream '" + config.name + "' needs a local port below 1024 (" +
                     std::strerror(-socket) +
                     "): give the data plane CAP_NET_BIND_SERVICE, or set privileged_port = false.");
  ::close(socket);
}

std::uint32_t operations(const UpstreamsConfig& config) {
  std::uint32_t most = 0;
  for (const UpstreamSetup& setup : config.upstreams)
    most += kConnectionOperations * setup.config.connections();
  return most;
}

}  // namespace

Upstreams::Upstreams(rdma::Device& device, CreditLimits& credits, const UpstreamsConfig& config,
                     std::uint64_t (*clock)() noexcept)
    : uring_(operations(config), config.uring), clock_(clock) {
  for (const UpstreamSetup& setup : config.upstreams) {
    check_privilege(setup.config);
    std::construct_at(setup.area);  // drops the counts of an earlier data plane
    const Upstream::Context context{.uring = uring_, .device = device, .credits = credits, .clock = clock_};
    upstreams_.push_back(std::make_unique<Upstream>(setup.config, context, setup.number, *setup.area));
    places_[setup.number] = add_routes(*upstreams_.back(), setup, config.ports);
  }
}

bool Upstreams::is_by_export(const UpstreamConfig& config, const Route& route) {
  return ExportGroup::shares(ulb::binding_or_plain(route.program, route.version)) &&
         (config.handle_tag != 0 || config.spare);
}

std::unique_ptr<TcpPlace> Upstreams::add_routes(Upstream& upstream, const UpstreamSetup& setup,
                                                service::ServicePorts* ports) {
  std::vector<ForwardService*> shared;
  std::vector<ForwardService*> alone;
  for (const Route& route : setup.routes) {
    if (is_by_export(setup.config, route))
      shared.push_back(&add_shared(upstream, route));
    else
      alone.push_back(&add_alone(upstream, route, setup.listen_port));
  }
  if (!setup.config.spare && !alone.empty()) return nullptr;
  return std::make_unique<TcpPlace>(upstream, std::move(shared), std::move(alone), ports);
}

ForwardService& Upstreams::add_alone(Upstream& upstream, const Route& route, std::uint32_t port) {
  const service::Binding binding = ulb::binding_or_plain(route.program, route.version);
  forwarding_.push_back(std::make_unique<ForwardService>(upstream, binding));
  services_.push_back({forwarding_.back().get(), port});
  return *forwarding_.back();
}

ForwardService& Upstreams::add_shared(Upstream& upstream, const Route& route) {
  const service::Binding binding = ulb::binding_or_plain(route.program, route.version);
  forwarding_.push_back(std::make_unique<ForwardService>(upstream, binding, upstream.config().handle_tag));
  const auto known = std::find_if(groups_.begin(), groups_.end(), [&](const auto& group) {
    return group->binding().program == binding.program;
  });
  if (known != groups_.end()) {
    (*known)->add(*forwarding_.back());
    return *forwarding_.back();
  }
  groups_.push_back(std::make_unique<ExportGroup>(binding));
  services_.push_back({groups_.back().get()});
  groups_.back()->add(*forwarding_.back());
  return *forwarding_.back();
}

std::uint64_t Upstreams::held_bytes(std::uint16_t client) const noexcept {
  std::uint64_t bytes = 0;
  for (const auto& upstream : upstreams_) bytes += upstream->held_bytes(client);
  return bytes;
}

bool Upstreams::poll(std::uint64_t now_ns) noexcept {
  for (const auto& place : places_)
    if (place) place->poll_place();
  for (const auto& upstream : upstreams_) upstream->flush();
  clock_.pass();
  const std::size_t count =
      uring_.poll([](void* target, tcp::Uring::Kind kind, const tcp::Uring::Completion& end) {
        auto& connection = *static_cast<UpstreamConnection*>(target);
        if (kind == tcp::Uring::kReceivedAgain) return connection.on_received_again(end);
        switch (kind) {
          case tcp::Uring::Kind::Connect:
            return connection.on_connected(end.result);
          case tcp::Uring::Kind::Receive:
            return connection.on_received(end);
          case tcp::Uring::Kind::Send:
            return connection.on_sent(end.result);
          case tcp::Uring::Kind::Accept:
            return;
        }
      });
  for (const auto& upstream : upstreams_) {
    upstream->serve_waiting();
    upstream->background(now_ns);
  }
  clock_.pass();
  return count > 0;
}

}  // namespace sluice::forward
