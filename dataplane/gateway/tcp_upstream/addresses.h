// SPDX-License-Identifier: Apache-2.0
//
// Selects the address and port of one upstream on one reactor. All addresses of an upstream lead to the same
// server, or to servers that share their state, so calls may use any of them. All connections use one address
// while it works. When it fails, the first other address that is not known to fail replaces it. An address of
// a preferred host is used again after it has answered for a while. The addresses of one host are equal:
// their order, and a change of that order, move no connection.
//
// Only the owning reactor may call. Never allocates after setup.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "dataplane/segment/control_tables.h"

namespace sluice::tcp_upstream {

/// Time in nanoseconds for which a failed address is not selected.
inline constexpr std::uint64_t kAwayNs = 2'000'000'000;
/// Number of replies to the control plane's NULL calls, counted since the last failure, after which an
/// address of a preferred host is used again.
inline constexpr std::uint32_t kGraceAnswers = 6;

class Addresses {
 public:
  /// Setup. `shared` outlives this object, and `upstream` is the name to look up in it. `port` applies until
  /// the addresses are known.
  Addresses(const segment::SharedUpstreamAddresses& shared, std::string upstream, std::uint16_t port = 0);

  /// Returns the address in use, or null if no address is known yet.
  const PeerAddress* current() const noexcept { return count_ > 0 ? &entries_[current_].address : nullptr; }
  std::uint16_t port() const noexcept { return port_; }
  bool has_others() const noexcept { return count_ > 1; }

  /// Looks up another upstream from now on. Discards the addresses of the previous one.
  void look_for(std::string_view upstream, std::uint16_t port) noexcept;

  // The next two functions return true if current() or port() has changed.

  /// Reads the addresses that the control plane has published since the last poll.
  bool poll(std::uint64_t now_ns) noexcept;
  /// Records a failure of the address: a connection could not be established, or the server did not answer.
  bool failed(const PeerAddress& address, std::uint64_t now_ns) noexcept;

 private:
  struct Entry {
    PeerAddress address;
    std::uint32_t answers = 0;  ///< consecutive replies to NULL, counted by the control plane
    std::uint32_t answers_when_failed = 0;
    std::uint32_t failures = 0;  ///< consecutive NULL calls without a reply
    std::uint32_t host = 0;      ///< position in the configuration; lower numbers are preferred
    std::uint64_t retry_ns = 0;  ///< time until which the address is not selected

    std::uint32_t answers_since() const noexcept { return answers - answers_when_failed; }
    bool bad() const noexcept { return failures >= segment::kBadChecks; }
  };

  Entry* find(const PeerAddress& address) noexcept;
  void take(const segment::UpstreamAddressList& list) noexcept;
  std::uint32_t best(std::uint64_t now_ns) const noexcept;
  std::uint32_t preferred() const noexcept;

  const segment::SharedUpstreamAddresses& shared_;
  std::string upstream_;        ///< name; its capacity suffices for every name
  std::uint32_t sequence_ = 0;  ///< sequence number of the table that was read last
  std::array<Entry, segment::kMaxUpstreamAddresses> entries_{};
  std::uint32_t count_ = 0;
  std::uint32_t current_ = 0;
  std::uint16_t port_;
};

}  // namespace sluice::tcp_upstream
