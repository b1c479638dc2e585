// SPDX-License-Identifier: Apache-2.0
//
// The place of an upstream over TCP: of one with exports of its own, or of one at a port of its own. Only the owning
// reactor may call, but as in upstream_place.h.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "dataplane/gateway/tcp_upstream/forward_service.h"
#include "dataplane/gateway/tcp_upstream/upstream_place.h"
#include "dataplane/service/api/service_ports.h"

namespace sluice::tcp_upstream {

class TcpPlace final : public UpstreamPlace {
 public:
  /// Setup. Outlived by the upstream and its services: the `shared` ones, which calls find by the tag of a handle, and
  /// those that are `alone` at the upstream's port. `ports` outlives the place; null: none comes that has one.
  TcpPlace(Upstream& upstream, std::vector<ForwardService*> shared, std::vector<ForwardService*> alone,
           service::ServicePorts* ports)
      : upstream_(upstream), shared_(std::move(shared)), alone_(std::move(alone)), ports_(ports) {}

 private:
  bool leave() noexcept override {
    set_handle_tag(0);
    return upstream_.leave();
  }
  void become(const Identity& identity) noexcept override {
    upstream_.become(identity.name, identity.port);
    set_handle_tag(identity.handle_tag);
    if (identity.listen_port != 0) listen(identity.listen_port);
  }
  void set_handle_tag(std::uint32_t tag) noexcept {
    for (ForwardService* const service : shared_) service->set_handle_tag(tag);
  }
  void listen(std::uint16_t port) noexcept {
    if (ports_ == nullptr) return;
    for (const ForwardService* const service : alone_) ports_->move(*service, port);
  }

  Upstream& upstream_;
  const std::vector<ForwardService*> shared_;
  const std::vector<ForwardService*> alone_;
  service::ServicePorts* const ports_;
};

}  // namespace sluice::tcp_upstream
