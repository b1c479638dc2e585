// SPDX-License-Identifier: Apache-2.0
//
// The busiest connections and clients of one round of ClientMonitor (client_monitor.h). Value types; any
// thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "dataplane/base/net_address.h"

namespace sluice::policy {

/// Number of connections and of clients that a round keeps.
inline constexpr std::size_t kBusiestKept = 64;

struct BusyConnection {
  std::uint32_t reactor = 0;
  std::uint32_t number = 0;
  PeerAddress peer{};
  std::uint32_t client_class = 0;
  std::uint32_t granted = 0;  ///< credits
  std::uint32_t busy = 0;     ///< calls in progress
  std::uint64_t calls = 0;    ///< calls answered since the previous round
};

/// Sum over the connections of one address that had calls in the round.
struct BusyClient {
  PeerAddress peer{};
  std::uint64_t connections = 0;
  std::uint64_t granted = 0;
  std::uint64_t busy = 0;
  std::uint64_t calls = 0;
};

/// A complete round. All fields are zero before the first round.
struct Round {
  std::uint64_t interval_ns = 0;  ///< time in which the calls were answered
  std::uint64_t connections = 0;
  std::uint64_t granted = 0;
  std::uint64_t busy = 0;
  std::uint64_t calls = 0;
  std::vector<BusyConnection> busiest{};  ///< the busiest first
  std::vector<BusyClient> clients{};      ///< the busiest first
};

}  // namespace sluice::policy
