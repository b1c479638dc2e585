// SPDX-License-Identifier: Apache-2.0
// State of a softroce port's link, which the main thread publishes for the lanes. It includes whether the
// lanes may use the ethdev.
//
// The main thread writes. Each lane compares one number in each poll, reads a change at the beginning of that
// poll and confirms it. The main thread closes the ethdev only after all lanes have confirmed that they no
// longer use it. So no lane blocks, and no lane is inside the ethdev while it is closed.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "dataplane/base/cache_line.h"
#include "dataplane/base/invariant.h"
#include "dataplane/base/seqlock.h"
#include "pmd/device.h"
#include "pmd/softroce/frame.h"
#include "pmd/softroce/port_config.h"

namespace sluice::rdma::softroce {

/// Use that the lanes may make of the ethdev.
enum class EthdevUse : std::uint8_t {
  Open,     ///< receive and transmit
  Leaving,  ///< none; it is closed once all lanes have confirmed
  Closed,   ///< none; it is opened again when the device returns
};

/// Reports whether `to` may follow `from`.
constexpr bool may_follow(EthdevUse from, EthdevUse to) noexcept {
  constexpr std::array<EthdevUse, 3> kNext{EthdevUse::Leaving, EthdevUse::Closed, EthdevUse::Open};
  return kNext[static_cast<std::size_t>(from)] == to;
}

/// Published facts. The counters start at port creation and never decrease.
struct LinkFacts {
  EthdevUse use = EthdevUse::Open;
  MacAddress mac{};
  std::uint16_t mtu = 0;            ///< bytes of the largest IP packet
  std::uint32_t downs = 0;          ///< number of times that the link went down
  std::uint32_t ups = 0;            ///< number of times that the link came up again
  std::uint32_t reopened = 0;       ///< number of times that the ethdev was opened again
  std::uint32_t mac_changes = 0;    ///< number of times that the MAC address changed
  std::uint32_t mtu_changes = 0;    ///< number of times that the interface's MTU changed
  bool kernel_serves = false;       ///< the kernel has an address of the port and may serve ports on it
  std::uint32_t announcements = 0;  ///< number of changes after which the addresses are announced again

  bool operator==(const LinkFacts&) const = default;
};

class PortLink {
 public:
  explicit PortLink(std::uint32_t lanes) noexcept : lane_count_(lanes) {}

  // Functions of the main thread.
  const LinkFacts& facts() const noexcept { return facts_; }
  void set_mac(const MacAddress& mac) noexcept { facts_.mac = mac; }
  void set_mtu(std::uint16_t mtu) noexcept { facts_.mtu = mtu; }
  /// Changes the MAC address and counts the change, unless the address is equal.
  void change_mac(const MacAddress& mac) noexcept;
  /// Changes the MTU and counts the change, unless the MTU is equal.
  void change_mtu(std::uint16_t mtu) noexcept;
  /// Sets the condition. `losses` is the number of times that the link was lost since the last call, if
  /// known.
  void change_condition(Condition to, std::uint32_t losses = 0) noexcept;
  void count_reopened() noexcept { ++facts_.reopened; }
  void announce_again() noexcept { ++facts_.announcements; }
  void set_kernel_serves(bool serves) noexcept { facts_.kernel_serves = serves; }
  /// Changes the use that the lanes may make of the ethdev. Call publish() afterwards.
  void transition(EthdevUse to) noexcept;
  /// Publishes the facts to the lanes.
  void publish() noexcept { shared_.write(facts_); }
  /// Returns whether every lane has confirmed the facts that were published last.
  bool all_lanes_follow() const noexcept;

  /// Returns the condition of the link. Any thread.
  Condition condition() const noexcept { return condition_.load(std::memory_order_relaxed); }

  // Functions of the reactor of `lane`.
  bool has_changed(std::uint32_t lane) const noexcept {
    return shared_.sequence() != lanes_[lane].seen.load(std::memory_order_relaxed);
  }
  /// Reads the facts. Returns their sequence number, or nullopt if they are being written; then the next poll
  /// reads them.
  std::optional<std::uint32_t> read(LinkFacts& facts) const noexcept;
  /// Confirms the facts of read(). Unless the ethdev is open, the lane holds none of its packets.
  void confirm(std::uint32_t lane, EthdevUse use, std::uint32_t sequence) noexcept {
    static_cast<void>(SLUICE_INVARIANT(lane < lane_count_, table_index));
    lanes_[lane].use = use;
    // Pairs with all_lanes_follow(): the lane's last use of the ethdev.
    lanes_[lane].seen.store(sequence, std::memory_order_release);
  }
  /// Returns the use of the ethdev that this lane has confirmed last.
  EthdevUse use(std::uint32_t lane) const noexcept { return lanes_[lane].use; }

 private:
  struct alignas(kCacheLine) Lane {
    EthdevUse use = EthdevUse::Open;     ///< the lane's own copy
    std::atomic<std::uint32_t> seen{0};  ///< sequence number of shared_ that the lane has confirmed
  };

  const std::uint32_t lane_count_;
  LinkFacts facts_;
  std::atomic<Condition> condition_{Condition::Up};
  SeqLock<LinkFacts> shared_{};
  std::array<Lane, kMaxLanes> lanes_;
};

inline void PortLink::change_mac(const MacAddress& mac) noexcept {
  if (facts_.mac == mac) return;
  facts_.mac = mac;
  ++facts_.mac_changes;
  ++facts_.announcements;
}

inline void PortLink::change_mtu(std::uint16_t mtu) noexcept {
  facts_.mtu_changes += facts_.mtu != mtu;
  facts_.mtu = mtu;
}

inline void PortLink::change_condition(Condition to, std::uint32_t losses) noexcept {
  const bool was_up = condition_.exchange(to, std::memory_order_relaxed) == Condition::Up;
  const bool is_up = to == Condition::Up;
  if (was_up && !is_up && losses == 0) losses = 1;
  facts_.downs += losses;
  // Every loss was followed by a return, except one that persists.
  const std::uint32_t returns = losses + !was_up - !is_up;
  facts_.ups += returns;
  facts_.announcements += returns > 0;
  static_cast<void>(SLUICE_INVARIANT(facts_.downs - facts_.ups == (is_up ? 0u : 1u), ethdev_use));
}

inline void PortLink::transition(EthdevUse to) noexcept {
  if (SLUICE_INVARIANT(may_follow(facts_.use, to), ethdev_use)) facts_.use = to;
}

inline bool PortLink::all_lanes_follow() const noexcept {
  for (std::uint32_t lane = 0; lane < lane_count_; ++lane)
    // Pairs with confirm(): the lane's last use of the ethdev.
    if (lanes_[lane].seen.load(std::memory_order_acquire) != shared_.sequence()) return false;
  return true;
}

inline std::optional<std::uint32_t> PortLink::read(LinkFacts& facts) const noexcept {
  const std::uint32_t sequence = shared_.sequence();
  if (!shared_.read(facts) || shared_.sequence() != sequence) return std::nullopt;
  return sequence;
}

}  // namespace sluice::rdma::softroce
