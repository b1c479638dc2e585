// SPDX-License-Identifier: Apache-2.0
//
// Totals of the busiest clients, for metrics. The control plane's main thread writes them through a SeqLock;
// any thread or process reads.
#pragma once

#include <array>
#include <cstdint>

#include "dataplane/base/net_address.h"

namespace sluice::segment {

inline constexpr std::uint32_t kClientsShown = 16;

struct ServedCalls {
  std::uint64_t calls = 0;
  std::uint64_t time_ns = 0;         ///< sum over all calls, each from its arrival to the end of its reply
  std::uint64_t received_bytes = 0;  ///< bytes of messages and RDMA Reads
  std::uint64_t sent_bytes = 0;      ///< bytes of messages and RDMA Writes
};

struct ShownClient {
  PeerAddress peer;
  std::uint32_t in_use = 0;
  std::uint32_t unused = 0;
  ServedCalls served;  ///< totals since the client entered the table
};

struct ClientTable {
  std::array<ShownClient, kClientsShown> clients;
  ServedCalls others;
};

}  // namespace sluice::segment
