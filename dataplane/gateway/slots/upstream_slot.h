// SPDX-License-Identifier: Apache-2.0
//
// Slot of an upstream on one reactor, the settings that a reload gives to the upstream, and the interface of
// what serves it over either transport.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "dataplane/base/invariant.h"
#include "dataplane/base/small_algorithms.h"
#include "dataplane/segment/config_block.h"
#include "dataplane/segment/gateways.h"
#include "dataplane/service/api/binding.h"

namespace sluice::gateway {

/// Maximum number of programs of one upstream.
inline constexpr std::uint32_t kMaxPrograms = segment::kMaxRoutes;

/// Settings of one upstream on one reactor. A reload can change all of them.
struct UpstreamSettings {
  std::string name;  ///< empty: the slot is free
  segment::Transport transport = segment::Transport::Tcp;
  std::uint16_t port = 0;  ///< initial port, until the addresses are known together with their port
  /// Connections of the reactor. Over TCP, these are shared by the clients. Over RDMA, each client with calls
  /// has one.
  std::uint32_t connections = 4;
  std::uint64_t call_timeout_ns = 0;  ///< age at which a call disconnects its client; zero: unlimited
  bool privileged_port = false;       ///< true: bind to a port below 1024
  service::Withheld withheld{};
  std::uint32_t handle_tag = 0;  ///< tag of its NFS 3 handles on the client side; zero: none
  /// Port at which only the services of this upstream are available. Zero: they use the common ports.
  std::uint16_t listen_port = 0;
  std::array<service::Route, kMaxPrograms> routes{};  ///< programs to serve
  std::uint32_t route_count = 0;

  bool operator==(const UpstreamSettings&) const = default;
  std::span<const service::Route> programs() const noexcept { return std::span(routes).first(route_count); }
  void set_programs(std::span<const service::Route> programs) noexcept {
    route_count = static_cast<std::uint32_t>(smaller_of<std::size_t>(programs.size(), routes.size()));
    routes = {};
    for (std::uint32_t i = 0; i < route_count; ++i) routes[i] = programs[i];
  }
};

/// Serves the upstream of a slot over one transport, on one reactor. Only the owning reactor may call.
class SlotSide {
 public:
  /// Returns whether an upstream is served or drained.
  virtual bool in_use() const noexcept = 0;
  /// Begins to serve an upstream that has the slot `number`. `area` outlives the use of the slot. Requires
  /// that the side serves no upstream. serve() has to be called next.
  virtual void begin(const UpstreamSettings& settings, std::uint32_t number,
                     segment::UpstreamArea& area) noexcept = 0;
  /// Applies settings to the upstream, and offers the services of its programs. Calls in progress keep what
  /// they began with. Returns false if a service waits for calls in progress; call again then.
  virtual bool serve(const UpstreamSettings& settings) noexcept = 0;
  /// Withdraws all services, so that the upstream gets no further calls.
  virtual void withdraw() noexcept = 0;
  /// Lets the calls of a withdrawn upstream end. Called in each loop iteration until it returns true, when
  /// neither calls nor connections remain. Disconnects the clients of calls that are not answered within
  /// kLeaveNs.
  virtual bool drain() noexcept = 0;

 protected:
  ~SlotSide() = default;
};

/// Lends the sides of one reactor to its slots. Only the owning reactor may call.
class SlotSides {
 public:
  /// Returns a side over the transport for the slot, or null if all are in use. The side is free again when
  /// its drain() has returned true.
  virtual SlotSide* take(segment::Transport transport, std::uint32_t slot) noexcept = 0;

 protected:
  ~SlotSides() = default;
};

/// Time in nanoseconds for which the calls of a replaced upstream may still be answered.
inline constexpr std::uint64_t kLeaveNs = 30'000'000'000;

/// Slot of an upstream on one reactor, which a reload assigns, changes and reassigns. All that it needs is
/// allocated at start, so that a reload allocates nothing on the reactor.
///
/// The main thread calls offer(), and any thread may call settled(). Only the owning reactor may call the
/// other functions.
class UpstreamSlot {
 public:
  /// Setup. The references outlive this object.
  UpstreamSlot(SlotSides& sides, std::uint32_t number, segment::UpstreamArea& area);
  UpstreamSlot(const UpstreamSlot&) = delete;
  UpstreamSlot& operator=(const UpstreamSlot&) = delete;

  /// Returns the settings that were offered last. The main thread calls it.
  const UpstreamSettings& offered() const noexcept { return settings_; }
  /// Offers settings to the upstream with their name. The main thread calls it while the slot is settled. An
  /// upstream with another name is drained first, and so is one side of an upstream that changes its
  /// transport. Settings without a name free the slot.
  void offer(UpstreamSettings settings) {
    static_cast<void>(SLUICE_INVARIANT(settled(), gateway_state));
    settings_ = std::move(settings);
    offered_.store(true, std::memory_order_release);  // pairs with settled(): the settings are complete
  }
  /// Returns true if the slot serves the upstream that was offered last. Any thread may call. Pairs with
  /// offer(), before which the settings are complete, and with poll_slot(), after which they are not read.
  bool settled() const noexcept { return !offered_.load(std::memory_order_acquire); }

  /// Advances a pending offer. The owning reactor calls it in each loop iteration.
  void poll_slot() noexcept {
    if (settled() || !advance()) return;
    offered_.store(false, std::memory_order_release);  // pairs with settled(): the settings have been read
  }

 private:
  bool advance() noexcept;
  void leave() noexcept;
  bool begin() noexcept;
  bool drained() noexcept;

  SlotSides& sides_;
  const std::uint32_t number_;
  segment::UpstreamArea& area_;
  SlotSide* active_ = nullptr;  ///< serves the upstream; null: the slot is free, or the former one is drained
  SlotSide* leaving_ = nullptr;     ///< is drained
  segment::Transport transport_{};  ///< of active_
  std::string served_;              ///< name of the upstream of active_
  UpstreamSettings settings_;       ///< written by the main thread while the slot is settled
  std::atomic<bool> offered_{false};
};

inline UpstreamSlot::UpstreamSlot(SlotSides& sides, std::uint32_t number, segment::UpstreamArea& area)
    : sides_(sides), number_(number), area_(area) {
  served_.reserve(segment::kMaxNameBytes);  // no later name allocates
}

/// Makes one step towards the offered settings. Returns true if they are in force.
inline bool UpstreamSlot::advance() noexcept {
  if (active_ != nullptr && served_ != settings_.name) leave();
  if (active_ == nullptr) {
    if (!drained()) return false;
    if (settings_.name.empty()) return true;
    if (!begin()) return false;
  } else if (transport_ != settings_.transport) {
    if (!drained()) return false;  // it has changed the transport before
    leave();
    if (!begin()) return false;  // the next step drains first
  }
  return active_->serve(settings_) && drained();
}

inline void UpstreamSlot::leave() noexcept {
  static_cast<void>(SLUICE_INVARIANT(leaving_ == nullptr, gateway_state));
  active_->withdraw();
  leaving_ = std::exchange(active_, nullptr);
}

/// Takes a side for the upstream. Returns false if none is free.
inline bool UpstreamSlot::begin() noexcept {
  SlotSide* const side = sides_.take(settings_.transport, number_);
  if (side == nullptr) return false;
  if (served_ != settings_.name) area_.clear();
  active_ = side;
  transport_ = settings_.transport;
  served_ = settings_.name;
  side->begin(settings_, number_, area_);
  return true;
}

/// Returns true if no former side is left to be drained.
inline bool UpstreamSlot::drained() noexcept {
  if (leaving_ == nullptr) return true;
  if (!leaving_->drain()) return false;
  leaving_ = nullptr;
  return true;
}

}  // namespace sluice::gateway
