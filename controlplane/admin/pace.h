// SPDX-License-Identifier: Apache-2.0
//
// Limit of the work that requests may cause in one iteration of the control loop, counted in connections.
// Methods whose work grows with the number of connections charge it. Reads no clock. Single-threaded.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sluice::admin {

/// Connections examined in one iteration. Examining a connection that a filter excludes takes less than 1 us.
inline constexpr std::uint32_t kLookedPerIteration = 4096;
/// Connections described in JSON in one iteration. A description takes about 20 us.
inline constexpr std::uint32_t kDescribedPerIteration = 128;

/// Maximum rows of one page of a listing.
inline constexpr std::uint32_t kMaxPageRows = kDescribedPerIteration;

/// Maximum rows of an answer that lists all connections. Longer listings are read in pages.
inline constexpr std::size_t kMaxListedAtOnce = 16'384;

class Pace {
 public:
  void begin_iteration() { looked_ = described_ = 0; }
  /// Returns true if the remaining work has to wait for the next iteration.
  bool spent() const { return looked_ >= kLookedPerIteration || described_ >= kDescribedPerIteration; }
  void count_row() { ++looked_; }
  void describe() { ++described_; }

  std::uint32_t looked() const { return looked_; }
  std::uint32_t described() const { return described_; }

 private:
  std::uint32_t looked_ = 0;
  std::uint32_t described_ = 0;
};

}  // namespace sluice::admin
