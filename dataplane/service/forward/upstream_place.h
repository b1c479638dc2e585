// SPDX-License-Identifier: Apache-2.0
//
// The place of an upstream with exports of its own, on one reactor: which upstream it is can change by a reload. All that
// the place needs is made at start, its memory, connections and services, so that nothing has to be made while calls
// are served. A spare place is no upstream's yet.
//
// The main thread offers; everything else is the owning reactor's.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "dataplane/service/forward/forward_service.h"

namespace sluice::forward {

class UpstreamPlace {
 public:
  /// Setup. Outlived by the upstream and its services.
  UpstreamPlace(Upstream& upstream, std::vector<ForwardService*> services)
      : upstream_(upstream), services_(std::move(services)) {}

  struct Identity {
    std::string name;
    std::uint16_t port = 0;
    std::uint32_t handle_tag = 0;  ///< not zero
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
    offered_.store(false, std::memory_order_release);
  }

 private:
  void set_handle_tag(std::uint32_t tag) noexcept {
    for (ForwardService* const service : services_) service->set_handle_tag(tag);
  }

  Upstream& upstream_;
  const std::vector<ForwardService*> services_;
  Identity identity_;  ///< the main thread's until it is offered
  std::atomic<bool> offered_{false};
};

}  // namespace sluice::forward
