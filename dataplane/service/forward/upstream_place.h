// SPDX-License-Identifier: Apache-2.0
//
// The place of an upstream on one reactor: which upstream it is can change by a reload. All that the place needs is made at
// start, its memory, connections and services, so that nothing has to be made while calls are served. A spare place is
// no upstream's yet: it becomes one with exports of its own, or one at a port of its own.
//
// The main thread offers; everything else is the owning reactor's.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "dataplane/service/api/service_ports.h"
#include "dataplane/service/forward/forward_service.h"

namespace sluice::forward {

class UpstreamPlace {
 public:
  /// Setup. Outlived by the upstream and its services: the `shared` ones, which calls find by the tag of a handle, and
  /// those that are `alone` at the upstream's port. `ports` outlives the place; null: none comes that has one.
  UpstreamPlace(Upstream& upstream, std::vector<ForwardService*> shared, std::vector<ForwardService*> alone,
                service::ServicePorts* ports)
      : upstream_(upstream), shared_(std::move(shared)), alone_(std::move(alone)), ports_(ports) {}

  struct Identity {
    std::string name;
    std::uint16_t port = 0;
    std::uint32_t handle_tag = 0;   ///< of one with exports of its own; else zero
    std::uint16_t listen_port = 0;  ///< of one at a port of its own, for a spare place; else zero
  };
  /// The main thread, while the place is settled. The upstream that has the place leaves it first.
  void offer(Identity identity) {
    identity_ = std::move(identity);
    offered_.store(true, std::memory_order_release);
  }
  /// Any thread: it serves what was offered.
  bool settled() const noexcept { return !offered_.load(std::memory_order_acquire); }

  /// The reactor, in each turn.
  void poll() noexcept {
    if (settled()) return;
    set_handle_tag(0);
    if (!upstream_.leave()) return;
    upstream_.become(identity_.name, identity_.port);
    set_handle_tag(identity_.handle_tag);
    if (identity_.listen_port != 0) listen(identity_.listen_port);
    offered_.store(false, std::memory_order_release);
  }

 private:
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
  Identity identity_;  ///< the main thread's until it is offered
  std::atomic<bool> offered_{false};
};

}  // namespace sluice::forward
