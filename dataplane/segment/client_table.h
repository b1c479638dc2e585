// SPDX-License-Identifier: Apache-2.0
//
// What the busiest clients have been served, for metrics. Written by the control plane, its one thread, through a
// SeqLock; any thread or process reads.
#pragma once

#include <array>
#include <cstdint>

#include "dataplane/base/net_address.h"

namespace sluice::segment {

inline constexpr std::uint32_t kClientsShown = 16;

struct ServedCalls {
  std::uint64_t calls = 0;
  std::uint64_t time_ns = 0;         ///< of all of them, each from its arrival to the end of its reply
  std::uint64_t received_bytes = 0;  ///< of messages and RDMA Reads
  std::uint64_t sent_bytes = 0;      ///< of messages and RDMA Writes
};

struct ShownClient {
  PeerAddress peer;
  std::uint32_t in_use = 0;
  std::uint32_t unused = 0;
  ServedCalls served;  ///< since it is shown
};

struct ClientTable {
  std::array<ShownClient, kClientsShown> clients;
  ServedCalls others;
};

}  // namespace sluice::segment
