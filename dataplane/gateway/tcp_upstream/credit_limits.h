// SPDX-License-Identifier: Apache-2.0
//
// Credit limits of clients whose calls would only wait at the gateway. RFC 8166, section 3.3.1, allows a
// responder to grant what its resources allow. Each upstream sets a limit for each client. A connection has
// one credit grant for all upstreams, and calls at one upstream use credits that calls at the others need.
// The grant is therefore large enough that the upstream with the highest limit gets its limit on top of the
// calls that the others hold. Only the owning reactor may call; only the constructor allocates.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "dataplane/base/invariant.h"
#include "dataplane/base/small_algorithms.h"
#include "dataplane/segment/gateways.h"
#include "dataplane/service/api/service.h"

namespace sluice::tcp_upstream {

/// Value of a credit limit that does not restrict the client.
inline constexpr std::uint32_t kNoLimit = ~std::uint32_t{0};

class CreditLimits {
 public:
  /// Setup. `clients` is the number of connections of the reactor.
  explicit CreditLimits(std::uint32_t clients) : of_clients_(clients) {}

  /// Marks an upstream as used. Upstream numbers are below segment::kMaxUpstreams. A used upstream that has
  /// set no limit does not restrict its clients.
  void use(std::uint32_t upstream) noexcept { in_use_[upstream] = true; }
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
  void forget(std::uint16_t client, std::uint32_t upstream) noexcept { of_clients_[client][upstream] = {}; }

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
