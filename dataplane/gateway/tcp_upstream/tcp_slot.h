// SPDX-License-Identifier: Apache-2.0
//
// Slot of an upstream over TCP that has either its own exports or its own listen port. Only the owning
// reactor may call, except where upstream_slot.h permits other threads.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "dataplane/gateway/tcp_upstream/forward_service.h"
#include "dataplane/gateway/tcp_upstream/upstream_slot.h"
#include "dataplane/service/api/service_ports.h"

namespace sluice::tcp_upstream {

class TcpSlot final : public UpstreamSlot {
 public:
  /// Setup. The upstream and its services outlive this object. Calls select the `shared` services by the tag
  /// of a handle, and the `alone` services by the upstream's listen port. `ports` outlives this object, and
  /// is null if no upstream with a listen port can be assigned.
  TcpSlot(Upstream& upstream, std::vector<ForwardService*> shared, std::vector<ForwardService*> alone,
          service::ServicePorts* ports)
      : upstream_(upstream), shared_(std::move(shared)), alone_(std::move(alone)), ports_(ports) {}

 private:
  bool drain() noexcept override {
    set_handle_tag(0);
    return upstream_.drain();
  }
  void assign(const Identity& identity) noexcept override {
    upstream_.assign(identity.name, identity.port);
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
