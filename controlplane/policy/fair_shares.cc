// SPDX-License-Identifier: Apache-2.0
#include "controlplane/policy/fair_shares.h"

#include <algorithm>
#include <cmath>

namespace sluice::policy {
namespace {

constexpr int kBisections = 48;

double share_at(const Claim& claim, double level) {
  return std::clamp(level * claim.weight, static_cast<double>(claim.least), static_cast<double>(claim.most));
}

double total_at(std::span<const Claim> claims, double level) {
  double total = 0;
  for (const Claim& claim : claims) total += share_at(claim, level);
  return total;
}

}  // namespace

FairShares fair_shares(std::span<const Claim> claims, std::uint64_t budget, std::size_t first,
                       std::span<std::uint32_t> shares) {
  double high = 0;
  for (const Claim& claim : claims) high = std::max(high, claim.most / claim.weight);
  const auto wanted = static_cast<double>(budget);
  double low = high;
  if (total_at(claims, high) > wanted) {
    low = 0;
    for (int i = 0; i < kBisections; ++i) {
      const double middle = (low + high) / 2;
      (total_at(claims, middle) > wanted ? high : low) = middle;
    }
  }
  FairShares result{.level = low, .total = 0};
  // Rounding errors must not turn a whole number into the one below it.
  constexpr double kRounding = 1e-6;
  for (std::size_t i = 0; i < claims.size(); ++i) {
    shares[i] = static_cast<std::uint32_t>(std::floor(share_at(claims[i], low) + kRounding));
    result.total += shares[i];
  }
  for (std::size_t i = 0; i < claims.size() && result.total < budget; ++i) {
    const std::size_t at = (first + i) % claims.size();
    // Only claims whose share was rounded down.
    if (shares[at] >= claims[at].most || low * claims[at].weight < shares[at] + kRounding) continue;
    ++shares[at];
    ++result.total;
  }
  return result;
}

}  // namespace sluice::policy
