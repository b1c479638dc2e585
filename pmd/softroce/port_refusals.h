// SPDX-License-Identifier: Apache-2.0
//
// TCP resets (RFC 9293, section 3.10.7.1) and ICMP port-unreachable messages (RFC 1122, section 3.2.2.1; RFC
// 4443, section 3.1) for TCP and UDP packets to addresses of the port, which has no such services. A client
// that does not use RDMA then fails immediately. Lane 0 only; no allocation. Sizes in bytes, times in ns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "pmd/softroce/frame.h"
#include "pmd/softroce/statistics.h"

namespace sluice::rdma::softroce {

/// Replies per second, and replies in one burst (RFC 4443, section 2.4 (f)).
inline constexpr std::uint64_t kRefusalsPerSecond = 100;
inline constexpr std::uint32_t kRefusalsInARow = 20;

class PortRefusals {
 public:
  /// Enables or disables the replies. They are disabled while the kernel has an address of the port, because
  /// the kernel has services there.
  void enable(bool enabled) noexcept { enabled_ = enabled; }

  /// Returns whether the packet requires a reply that the rate limit permits. Counts a reply that the limit
  /// suppresses.
  bool has_answer(const Frame& frame, std::uint64_t now_ns, Statistics& statistics) noexcept;
  /// Writes the IP packet that replies to `packet`, the IP packet of `frame`. Returns its length, which is at
  /// most kMaxRefusalBytes. Requires that has_answer() has returned true.
  static std::size_t write(const Frame& frame, std::span<const std::byte> packet, std::byte* out) noexcept;

 private:
  bool within_rate(std::uint64_t now_ns) noexcept;

  bool enabled_ = true;
  std::uint64_t paid_until_ns_ = 0;  ///< time until which the replies so far use up the rate
};

/// Minimum MTU of IPv6, which an ICMPv6 error does not exceed.
inline constexpr std::size_t kMaxRefusalBytes = 1280;

}  // namespace sluice::rdma::softroce
