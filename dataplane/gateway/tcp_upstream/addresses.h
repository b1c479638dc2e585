// SPDX-License-Identifier: Apache-2.0
//
// Selects where the connections of one upstream go, on one reactor: a port at one of its addresses. Several
// addresses lead to the same server, or to servers that share their state, so that calls may go to any of them; all
// go to one while it works. When it fails the first one of the others that is not known to fail takes its place, and
// an address of a preferred host gets it back when it has been well for a while. The addresses of one host are equal:
// their order and changes of it move no connection.
//
// Only the owning reactor may call. No allocation.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "dataplane/segment/upstream_addresses.h"

namespace sluice::tcp_upstream {

/// An address that has failed is left alone for so long.
inline constexpr std::uint64_t kAwayNs = 2'000'000'000;
/// Replies to the control plane's NULL, since the last failure, after which an address of a preferred host is
/// used again.
inline constexpr std::uint32_t kGraceAnswers = 6;

class Addresses {
 public:
  /// Setup. `shared` outlives it; `upstream` is the name to look for in it, and `port` good until the addresses are there.
  Addresses(const segment::SharedUpstreamAddresses& shared, std::string upstream, std::uint16_t port = 0);

  /// Null: none is known yet.
  const PeerAddress* current() const noexcept { return count_ > 0 ? &entries_[current_].address : nullptr; }
  std::uint16_t port() const noexcept { return port_; }
  bool has_others() const noexcept { return count_ > 1; }

  /// The upstream is another one from now on: of what was known before nothing is kept.
  void look_for(std::string_view upstream, std::uint16_t port) noexcept;

  // Both return whether current() or port() has changed.

  /// Reads what the control plane has found since.
  bool poll(std::uint64_t now_ns) noexcept;
  /// A connection to it could not be made, or the server has fallen silent.
  bool failed(const PeerAddress& address, std::uint64_t now_ns) noexcept;

 private:
  struct Entry {
    PeerAddress address;
    std::uint32_t answers = 0;  ///< as the control plane counts them
    std::uint32_t answers_when_failed = 0;
    std::uint32_t failures = 0;
    std::uint32_t host = 0;  ///< lower: preferred
    std::uint64_t retry_ns = 0;

    std::uint32_t answers_since() const noexcept { return answers - answers_when_failed; }
    bool bad() const noexcept { return failures >= segment::kBadChecks; }
  };

  Entry* find(const PeerAddress& address) noexcept;
  void take(const segment::UpstreamAddressList& list) noexcept;
  std::uint32_t best(std::uint64_t now_ns) const noexcept;
  std::uint32_t preferred() const noexcept;

  const segment::SharedUpstreamAddresses& shared_;
  std::string upstream_;        ///< has room for each name
  std::uint32_t sequence_ = 0;  ///< of what was read last
  std::array<Entry, segment::kMaxUpstreamAddresses> entries_{};
  std::uint32_t count_ = 0;
  std::uint32_t current_ = 0;
  std::uint16_t port_;
};

}  // namespace sluice::tcp_upstream
