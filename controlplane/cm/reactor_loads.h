// SPDX-License-Identifier: Apache-2.0
//
// Choice of the reactor for a new connection: the one that has been busy for the least time in the last
// seconds. Connections that were placed since then count with the share of a processor that a connection has
// used on average, so that many connections at once do not all go to one reactor.
//
// Belongs to the control plane's loop. Times in ns on the monotonic clock; shares are parts of a processor.
#pragma once

#include <array>
#include <cstdint>

#include "dataplane/base/invariant.h"
#include "dataplane/base/small_algorithms.h"
#include "dataplane/segment/tables.h"

namespace sluice::cm {

class ReactorLoads {
 public:
  using PerReactor = std::array<std::uint64_t, segment::kMaxReactors>;

  /// Time between two measurements.
  static constexpr std::uint64_t kWindowNs = 2'000'000'000;
  /// Share that an idle reactor's new connection is expected to use at least.
  static constexpr double kLeastShare = 0.001;
  /// Share that counts for all connections of a process together. It decides between reactors that are
  /// equally busy, by the number of their connections.
  static constexpr double kShareOfCounts = 0.1;

  /// Returns true if measure() is due.
  bool is_due(std::uint64_t now_ns) const noexcept { return now_ns - measured_ns_ >= kWindowNs; }

  /// Ends a window. `busy_ns` is the time that each reactor has been busy since its start. A value that has
  /// fallen belongs to a new data plane, which counts as idle. `connections` is the number of all
  /// connections.
  void measure(std::uint64_t now_ns, const PerReactor& busy_ns, std::uint64_t connections) noexcept {
    const auto window = static_cast<double>(larger_of<std::uint64_t>(now_ns - measured_ns_, 1));
    double sum = 0;
    for (std::size_t i = 0; i < shares_.size(); ++i) {
      const std::uint64_t busy = busy_ns[i] - smaller_of(busy_ns_[i], busy_ns[i]);
      const bool restarted = busy_ns[i] < busy_ns_[i];
      shares_[i] = restarted || measured_ns_ == 0 ? 0 : smaller_of(static_cast<double>(busy) / window, 1.0);
      sum += shares_[i];
    }
    share_of_connection_ =
        connections == 0 ? kLeastShare : larger_of(sum / static_cast<double>(connections), kLeastShare);
    busy_ns_ = busy_ns;
    placed_ = {};
    measured_ns_ = now_ns;
  }

  /// Notes a connection that was placed.
  void placed(std::uint32_t reactor) noexcept {
    static_cast<void>(SLUICE_INVARIANT(reactor < placed_.size(), table_index));
    ++placed_[reactor];
  }

  /// Returns what a reactor is expected to use. `count` of `all` connections are on it.
  double expected(std::uint32_t reactor, std::uint64_t count, std::uint64_t all) const noexcept {
    static_cast<void>(SLUICE_INVARIANT(reactor < shares_.size() && count <= all, table_index));
    const double of_counts = all == 0 ? 0 : static_cast<double>(count) / static_cast<double>(all);
    return shares_[reactor] + static_cast<double>(placed_[reactor]) * share_of_connection_ +
           kShareOfCounts * of_counts;
  }

 private:
  std::array<double, segment::kMaxReactors> shares_{};
  PerReactor busy_ns_{};
  PerReactor placed_{};
  double share_of_connection_ = kLeastShare;
  std::uint64_t measured_ns_ = 0;
};

}  // namespace sluice::cm
