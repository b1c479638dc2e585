// SPDX-License-Identifier: Apache-2.0
//
// Weighted max-min fairness: nobody can have more without taking it from somebody who has less for his
// weight. Pure.
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
  /// What one unit of weight gets where neither end of a claim binds; the share of a newcomer.
  double level = 0;
  std::uint64_t total = 0;
};

/// Divides `budget` among `claims`. The sum of the shares is no more than the budget, or than the sum of what
/// is given in any case. What whole numbers leave over goes to one after the other from number `first` on, so
/// that turning `first` makes up for it in the long run.
FairShares fair_shares(std::span<const Claim> claims, std::uint64_t budget, std::size_t first,
                       std::span<std::uint32_t> shares);

}  // namespace sluice::policy
