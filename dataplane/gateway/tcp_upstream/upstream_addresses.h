// SPDX-License-Identifier: Apache-2.0
//
// Parts of one reactor that upstreams over either transport have in common: the selection of an address, and
// the credit limits of clients.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dataplane/base/invariant.h"
#include "dataplane/base/small_algorithms.h"
#include "dataplane/segment/control_tables.h"
#include "dataplane/segment/gateways.h"
#include "dataplane/service/api/service.h"

namespace sluice::tcp_upstream {

/// Time in nanoseconds for which a failed address is not selected.
inline constexpr std::uint64_t kAwayNs = 2'000'000'000;
/// Number of replies to the control plane's NULL calls, counted since the last failure, after which an
/// address of a preferred host is used again.
inline constexpr std::uint32_t kGraceAnswers = 6;

/// Selects the address and port of one upstream on one reactor. All addresses of an upstream lead to the same
/// server, or to servers that share their state, so calls may use any of them. All connections use one
/// address while it works. When it fails, the first other address that is not known to fail replaces it. An
/// address of a preferred host is used again after it has answered for a while. The addresses of one host are
/// equal: their order, and a change of that order, move no connection.
///
/// Only the owning reactor may call. Never allocates after setup.
class Addresses {
 public:
  /// Setup. `shared` outlives this object, and `upstream` is the name to look up in it. `port` applies until
  /// the addresses are known.
  Addresses(const segment::SharedUpstreamAddresses& shared, std::string upstream, std::uint16_t port = 0);

  /// Returns the address in use, or null if no address is known yet.
  const PeerAddress* current() const noexcept { return count_ > 0 ? &entries_[current_].address : nullptr; }
  std::uint16_t port() const noexcept { return port_; }
  bool has_others() const noexcept { return count_ > 1; }

  /// Selects the upstream whose addresses are used. Discards the addresses of the previous one.
  void select(std::string_view upstream, std::uint16_t port) noexcept;

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

/// Value of a credit limit that does not restrict the client.
inline constexpr std::uint32_t kNoLimit = ~std::uint32_t{0};

/// Credit limits of clients whose calls would only wait at the gateway. RFC 8166, section 3.3.1, allows a
/// responder to grant what its resources allow. Each upstream sets a limit for each client. A connection has
/// one credit grant for all upstreams, and calls at one upstream use credits that calls at the others need.
/// The grant is therefore large enough that the upstream with the highest limit gets its limit on top of the
/// calls that the others hold. Only the owning reactor may call; only the constructor allocates.
class CreditLimits {
 public:
  /// Setup. `clients` is the number of connections of the reactor.
  explicit CreditLimits(std::uint32_t clients) : of_clients_(clients) {}

  /// Marks an upstream as used. Upstream numbers are below segment::kMaxUpstreams. A used upstream that has
  /// set no limit does not restrict its clients.
  void use(std::uint32_t upstream) noexcept {
    if (SLUICE_INVARIANT(upstream < in_use_.size(), table_index)) in_use_[upstream] = true;
  }
  /// Sets the limit of a client at one upstream. `held` is the number of the client's calls that are
  /// outstanding at the upstream or wait for it.
  void set(service::Client& client, std::uint32_t upstream, std::uint32_t limit,
           std::uint32_t held) noexcept {
    if (!SLUICE_INVARIANT(client.number() < of_clients_.size() && upstream < in_use_.size(), pool_balance))
      return;
    OfClient& of_client = of_clients_[client.number()];
    of_client[upstream] = {.limit = limit, .held = held};
    client.limit_credits(together(of_client));
  }
  /// Removes the limit of a disconnected client.
  void forget(std::uint16_t client, std::uint32_t upstream) noexcept {
    if (!SLUICE_INVARIANT(client < of_clients_.size() && upstream < in_use_.size(), table_index)) return;
    of_clients_[client][upstream] = {};
  }

 private:
  struct Limit {
    std::uint32_t limit = kNoLimit;
    std::uint32_t held = 0;
  };
  using OfClient = std::array<Limit, segment::kMaxUpstreams>;

  /// Returns the highest sum of one upstream's limit and the calls that the other upstreams hold.
  std::uint32_t together(const OfClient& of_client) const noexcept {
    std::uint32_t held = 0;
    for (const Limit& each : of_client) held += each.held;
    std::uint32_t most = 0;
    for (std::size_t i = 0; i < of_client.size(); ++i) {
      if (!in_use_[i]) continue;
      if (of_client[i].limit == kNoLimit) return kNoLimit;
      most = larger_of(most, of_client[i].limit + held - of_client[i].held);
    }
    return most;
  }

  std::vector<OfClient> of_clients_;
  std::array<bool, segment::kMaxUpstreams> in_use_{};
};

}  // namespace sluice::tcp_upstream
