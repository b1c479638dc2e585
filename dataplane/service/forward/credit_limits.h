// SPDX-License-Identifier: Apache-2.0
//
// Credits of clients whose calls would only wait here (RFC 8166, section 3.3.1, lets a responder grant what its
// resources allow). Each upstream has its own limit for each client; the lowest counts. Only the owning reactor
// may call; only the constructor allocates.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "dataplane/segment/upstreams.h"
#include "dataplane/service/api/service.h"

namespace sluice::forward {

inline constexpr std::uint32_t kNoLimit = ~std::uint32_t{0};

class CreditLimits {
 public:
  /// Setup: for this many connections of the reactor.
  explicit CreditLimits(std::uint32_t clients) : limits_(clients) {
    for (auto& of_client : limits_) of_client.fill(kNoLimit);
  }

  /// `upstream` counts from zero.
  void set(service::Client& client, std::uint32_t upstream, std::uint32_t limit) noexcept {
    auto& limits = limits_[client.number()];
    limits[upstream] = limit;
    client.limit_credits(*std::min_element(limits.begin(), limits.end()));
  }
  /// The client has gone.
  void forget(std::uint16_t client, std::uint32_t upstream) noexcept { limits_[client][upstream] = kNoLimit; }

 private:
  std::vector<std::array<std::uint32_t, segment::kMaxUpstreams>> limits_;
};

}  // namespace sluice::forward
