// SPDX-License-Identifier: Apache-2.0
#include "dataplane/service/forward/upstreams.h"

#include <unistd.h>

#include <cstring>

#include "dataplane/service/forward/sockets.h"
#include "dataplane/ulb/bindings.h"

namespace sluice::forward {
namespace {

rpcrdma::BufferPool pool(rdma::Device& device, std::uint32_t buffers, std::size_t bytes) {
  return {device.allocate_memory(buffers * bytes), bytes};
}

/// Said at the start, not when the first call fails.
void check_privilege(const UpstreamConfig& config) {
  if (!config.privileged_port) return;
  const int socket = connecting_socket(config.address.ss_family, true, kPeerTimeoutMs);
  if (socket < 0)
    throw rdma::SetupError("Upstream '" + config.name + "' wants a port below 1024 (" +
                           std::strerror(-socket) +
                           "): give the data plane CAP_NET_BIND_SERVICE, or set privileged_port = false.");
  ::close(socket);
}

}  // namespace

Upstreams::Upstreams(rdma::Device& device, const UpstreamsConfig& config, std::uint64_t (*clock)() noexcept)
    : memory_{pool(device, config.record_buffers, kMaxRecordBytes),
              pool(device, config.item_buffers, kItemBytes)} {
  for (const UpstreamSetup& setup : config.upstreams) {
    check_privilege(setup.config);
    std::construct_at(setup.area);  // a predecessor's
    upstreams_.push_back(std::make_unique<Upstream>(setup.config, uring_, memory_, *setup.area, clock));
    for (const Route& route : setup.routes)
      services_.push_back(std::make_unique<ForwardService>(*upstreams_.back(),
                                                           ulb::find_binding(route.program, route.version)));
  }
}

bool Upstreams::poll(std::uint64_t now_ns) noexcept {
  for (const auto& upstream : upstreams_) upstream->flush();
  const std::size_t count = uring_.poll([](void* target, Uring::Kind kind, int result) {
    auto& connection = *static_cast<UpstreamConnection*>(target);
    switch (kind) {
      case Uring::Kind::Connect:
        return connection.on_connected(result);
      case Uring::Kind::Receive:
        return connection.on_received(result);
      case Uring::Kind::Send:
        return connection.on_sent(result);
    }
  });
  for (const auto& upstream : upstreams_) {
    upstream->resume_stalled();
    upstream->background(now_ns);
  }
  return count > 0;
}

}  // namespace sluice::forward
