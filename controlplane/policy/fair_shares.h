// SPDX-License-Identifier: Apache-2.0
//
// Weighted max-min fairness: no share can grow without shrinking one that is smaller in proportion to its
// weight. Pure; any thread.
#pragma once

#include <cstdint>
#include <span>

namespace sluice::policy {

struct Claim {
  double weight = 1;        ///< above zero
  std::uint32_t least = 1;  ///< given in any case
  std::uint32_t most = 1;   ///< not below `least`
};

struct FairShares {
  /// Share per unit of weight of claims that are held neither at `least` nor at `most`.
  double level = 0;
  std::uint64_t total = 0;
};

/// Divides `budget` among `claims` into `shares`, which has the same size. The sum of the shares is at most
/// the budget, or the sum of all `least` when that is more. What rounding down leaves over goes one by one to
/// claims from number `first` on: callers advance `first` from time to time, so that it evens out.
FairShares fair_shares(std::span<const Claim> claims, std::uint64_t budget, std::size_t first,
                       std::span<std::uint32_t> shares);

}  // namespace sluice::policy
