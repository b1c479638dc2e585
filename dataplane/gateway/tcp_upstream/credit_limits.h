// SPDX-License-Identifier: Apache-2.0
//
// Credits of clients whose calls would only wait here (RFC 8166, section 3.3.1, lets a responder grant what its
// resources allow). Each upstream says how many it would grant a client. A connection has one number of credits for
// all of them, which the client's calls at one use up for the others: it is granted as many as leave each upstream
// what that one grants. Only the owning reactor may call; only the constructor allocates.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "dataplane/base/invariant.h"
#include "dataplane/base/small_algorithms.h"
#include "dataplane/segment/upstreams.h"
#include "dataplane/service/api/service.h"

namespace sluice::tcp_upstream {

inline constexpr std::uint32_t kNoLimit = ~std::uint32_t{0};

class CreditLimits {
 public:
  /// Setup: for this many connections of the reactor.
  explicit CreditLimits(std::uint32_t clients) : of_clients_(clients) {}

  /// Upstreams count from zero, below segment::kMaxUpstreams. One that is in use and has set nothing grants all.
  void use(std::uint32_t upstream) noexcept { in_use_[upstream] = true; }
  /// `held`: calls of the client that the upstream has, or that wait for it.
  void set(service::Client& client, std::uint32_t upstream, std::uint32_t limit,
           std::uint32_t held) noexcept {
    if (!SLUICE_INVARIANT(client.number() < of_clients_.size() && upstream < in_use_.size(), pool_balance))
      return;
    OfClient& of_client = of_clients_[client.number()];
    of_client[upstream] = {.limit = limit, .held = held};
    client.limit_credits(together(of_client));
  }
  /// The client has gone.
  void forget(std::uint16_t client, std::uint32_t upstream) noexcept { of_clients_[client][upstream] = {}; }

 private:
  struct Limit {
    std::uint32_t limit = kNoLimit;
    std::uint32_t held = 0;
  };
  using OfClient = std::array<Limit, segment::kMaxUpstreams>;

  /// The most that any upstream grants, beside the calls that the others hold.
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
