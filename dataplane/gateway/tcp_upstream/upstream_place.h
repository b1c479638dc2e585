// SPDX-License-Identifier: Apache-2.0
//
// The place of an upstream on one reactor: which upstream it is can change by a reload. All that the place needs is made at
// start, its memory, connections and services, so that nothing has to be made while calls are served. A spare place is
// no upstream's yet.
//
// The main thread offers; everything else is the owning reactor's.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <utility>

namespace sluice::tcp_upstream {

class UpstreamPlace {
 public:
  struct Identity {
    std::string name;
    std::uint16_t port = 0;
    std::uint32_t handle_tag = 0;   ///< of one with exports of its own; else zero
    std::uint16_t listen_port = 0;  ///< of one at a port of its own, for a spare place; else zero
  };

  UpstreamPlace() = default;
  UpstreamPlace(const UpstreamPlace&) = delete;
  UpstreamPlace& operator=(const UpstreamPlace&) = delete;

  /// The main thread, while the place is settled. The upstream that has the place leaves it first.
  void offer(Identity identity) {
    identity_ = std::move(identity);
    offered_.store(true, std::memory_order_release);
  }
  /// Any thread: it serves what was offered.
  bool settled() const noexcept { return !offered_.load(std::memory_order_acquire); }

  /// The reactor, in each turn.
  void poll_place() noexcept {
    if (settled() || !leave()) return;
    become(identity_);
    offered_.store(false, std::memory_order_release);
  }

 protected:
  ~UpstreamPlace() = default;

 private:
  /// The upstream that has the place takes no more calls. False: some are still on their way.
  virtual bool leave() noexcept = 0;
  virtual void become(const Identity& identity) noexcept = 0;

  Identity identity_;  ///< the main thread's until it is offered
  std::atomic<bool> offered_{false};
};

}  // namespace sluice::tcp_upstream
