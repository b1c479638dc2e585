// SPDX-License-Identifier: Apache-2.0
//
// A place for an upstream that comes by a reload: made at start like one with exports of its own, with its memory,
// connections and services, so that nothing has to be made while calls are served. It becomes one upstream, once;
// its place is free again with the next start.
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

class SpareUpstream {
 public:
  /// Setup. Outlived by the upstream and its services.
  SpareUpstream(Upstream& upstream, std::vector<ForwardService*> services)
      : upstream_(upstream), services_(std::move(services)) {}

  struct Identity {
    std::string name;
    std::uint16_t port = 0;
    std::uint32_t handle_tag = 0;  ///< not zero
  };
  /// The main thread, once.
  void offer(Identity identity) {
    identity_ = std::move(identity);
    state_.store(State::Offered, std::memory_order_release);
  }
  /// Any thread: it serves what was offered.
  bool taken() const noexcept { return state_.load(std::memory_order_acquire) == State::Taken; }

  /// The reactor, in each turn.
  void poll() noexcept {
    if (state_.load(std::memory_order_acquire) != State::Offered) return;
    upstream_.become(identity_.name, identity_.port);
    for (ForwardService* const service : services_) service->set_handle_tag(identity_.handle_tag);
    state_.store(State::Taken, std::memory_order_release);
  }

 private:
  enum class State : std::uint8_t { Free, Offered, Taken };

  Upstream& upstream_;
  const std::vector<ForwardService*> services_;
  Identity identity_;  ///< the main thread's until it is offered
  std::atomic<State> state_{State::Free};
};

}  // namespace sluice::forward
