// SPDX-License-Identifier: Apache-2.0
//
// Weighted max-min fairness: no share can grow without shrinking one that is smaller in proportion to its
// weight. Pure functions; any thread.
#pragma once

#include <cstdint>
#include <span>

namespace sluice::policy {

struct Claim {
  double weight = 1;        ///< above zero
  std::uint32_t least = 1;  ///< minimum share, which is always granted
  std::uint32_t most = 1;   ///< maximum share, not below `least`
};

struct FairShares {
  /// Share per unit of weight, for claims that are bounded neither by `least` nor by `most`.
  double level = 0;
  std::uint64_t total = 0;
};

/// Divides `budget` among `claims` into `shares`, which has the same size. The sum of the shares is at most
/// the budget, or the sum of all `least` if that is larger. The remainder from rounding down is distributed
/// one by one to the claims from number `first` on. Callers advance `first` from time to time, so that the
/// distribution evens out.
FairShares fair_shares(std::span<const Claim> claims, std::uint64_t budget, std::size_t first,
                       std::span<std::uint32_t> shares);

}  // namespace sluice::policy
