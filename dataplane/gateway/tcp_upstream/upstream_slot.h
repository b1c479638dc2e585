// SPDX-License-Identifier: Apache-2.0
//
// Preallocated slot of an upstream on one reactor. A reload can reassign it to another upstream. Its memory,
// connections and services are allocated at start, so that a reload allocates nothing on the reactor. A spare
// slot is not assigned to any upstream yet.
//
// The main thread calls offer(), and any thread may call settled(). Only the owning reactor may call the
// other functions.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <utility>

namespace sluice::tcp_upstream {

class UpstreamSlot {
 public:
  struct Identity {
    std::string name;
    std::uint16_t port = 0;
    std::uint32_t handle_tag = 0;   ///< tag of an upstream with its own exports; zero for any other
    std::uint16_t listen_port = 0;  ///< own port of an upstream that gets a spare slot; zero for any other
  };

  UpstreamSlot() = default;
  UpstreamSlot(const UpstreamSlot&) = delete;
  UpstreamSlot& operator=(const UpstreamSlot&) = delete;

  /// Offers the slot to another upstream. The main thread calls it while the slot is settled. The current
  /// upstream is drained first.
  void offer(Identity identity) {
    identity_ = std::move(identity);
    offered_.store(true, std::memory_order_release);
  }
  /// Returns true if the slot serves the upstream that was offered last. Any thread may call.
  bool settled() const noexcept { return !offered_.load(std::memory_order_acquire); }

  /// Advances a pending offer. The owning reactor calls it in each loop iteration.
  void poll_slot() noexcept {
    if (settled() || !drain()) return;
    assign(identity_);
    offered_.store(false, std::memory_order_release);
  }

 protected:
  ~UpstreamSlot() = default;

 private:
  /// Drains the current upstream, which accepts no further calls. Returns false while calls are in progress.
  virtual bool drain() noexcept = 0;
  /// Assigns the slot to another upstream.
  virtual void assign(const Identity& identity) noexcept = 0;

  Identity identity_;  ///< written by the main thread while the slot is settled
  std::atomic<bool> offered_{false};
};

}  // namespace sluice::tcp_upstream
