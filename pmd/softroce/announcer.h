// SPDX-License-Identifier: Apache-2.0
//
// Frames that a host sends unsolicited when it starts, when its link comes up again and when its MAC address
// changes. They announce its addresses (RFC 5227, section 2.3; RFC 4861, section 7.2.6), probe whether
// another host has them (RFC 5227, section 2.1.1; RFC 4862, section 5.4), and report the multicast groups of
// the host (RFC 3810). Addresses are used immediately, as in RFC 4429, because a restart of the data plane
// must not cost its clients seconds.
//
// Lane 0 of a port has one. Only its reactor may call. The configuration and the MAC address, which may
// change, outlive the announcer. Times in ns.
#pragma once

#include <cstddef>
#include <cstdint>

#include "pmd/softroce/frame.h"
#include "pmd/softroce/port_config.h"

namespace sluice::rdma::softroce {

/// Number of rounds in which all frames are sent, and the interval between two rounds.
inline constexpr std::uint32_t kAnnouncements = 3;
inline constexpr std::uint64_t kAnnounceIntervalNs = 1'000'000'000;
/// Minimum interval between two defences of an address that another host uses (RFC 5227, section 2.4).
inline constexpr std::uint64_t kDefendIntervalNs = 10'000'000'000;

enum class GroupRecord : std::uint8_t { Is = 2, Joined = 4 };  // RFC 3810, section 5.2.12: excludes no source

/// Writes a report of the groups of all IPv6 addresses and returns its length. Returns zero if there are
/// none.
std::size_t write_group_report(const PortConfig& config, const MacAddress& own, GroupRecord kind,
                               std::byte* out) noexcept;

class Announcer {
 public:
  Announcer(const PortConfig& config, const MacAddress& own, std::uint64_t now_ns) noexcept
      : config_(config), own_(own), next_ns_(config.announce ? now_ns : kNever) {}

  bool due(std::uint64_t now_ns) const noexcept { return now_ns >= next_ns_; }
  /// Writes the next frame and returns its length, or zero if this step has no frame. Requires due().
  std::size_t next(std::uint64_t now_ns, std::byte* out) noexcept;
  /// Restarts the announcements after the link was down or the MAC address has changed.
  void again(std::uint64_t now_ns) noexcept;
  /// Announces the addresses again because another host uses one of them.
  void defend(std::uint64_t now_ns) noexcept;

 private:
  static constexpr std::uint64_t kNever = ~std::uint64_t{0};

  std::size_t write(std::size_t step, std::byte* out) const noexcept;

  const PortConfig& config_;
  const MacAddress& own_;
  std::uint32_t round_ = 0;
  std::size_t step_ = 0;  ///< position in a round: two steps per address (probe, announce) and one for the
                          ///< groups
  std::uint64_t next_ns_;
  std::uint64_t defended_ns_ = 0;
};

}  // namespace sluice::rdma::softroce
