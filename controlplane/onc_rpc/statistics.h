// SPDX-License-Identifier: Apache-2.0
//
// Counters of the sockets and registrations of one RPC service. Written by the service's thread; any thread
// may read them.
#pragma once

#include <atomic>
#include <cstdint>

namespace sluice::onc_rpc {

// X(name). The names are label values of a metric.
#define SLUICE_RPC_SOCKET_STATISTICS(X)                                           \
  X(connections)          /* TCP connections accepted */                          \
  X(connections_refused)  /* connections closed immediately because of a limit */ \
  X(connections_replaced) /* connections evicted for a new one */                 \
  X(connections_overdue)  /* connections closed by a timeout */                   \
  X(records_too_long)     /* connections closed because a record was too long */

struct ServerStatistics {
#define SLUICE_RPC_FIELD(name) std::atomic<std::uint64_t> name = 0;
  SLUICE_RPC_SOCKET_STATISTICS(SLUICE_RPC_FIELD)
#undef SLUICE_RPC_FIELD
  /// Number of addresses that rpcbind has for another server.
  std::atomic<std::uint64_t> registrations_foreign = 0;
};

inline void count(std::atomic<std::uint64_t>& counter) {
  counter.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace sluice::onc_rpc
