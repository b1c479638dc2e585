// SPDX-License-Identifier: Apache-2.0
//
// Counters of the MOUNT service and of other services with TCP clients. Written by the service's thread; any
// thread may read them.
#pragma once

#include <atomic>
#include <cstdint>

namespace sluice::mount {

// X(name). The names are label values of a metric.
#define SLUICE_MOUNT_STATISTICS(X)                                                            \
  X(calls)                 /* calls with a header that can be decoded */                      \
  X(malformed)             /* messages that are not calls, and malformed arguments */         \
  X(denied)                /* mounts refused because the export does not permit the client */ \
  X(connections)           /* TCP connections accepted */                                     \
  X(connections_refused)   /* connections closed immediately because of a limit */            \
  X(connections_replaced)  /* connections evicted for a new one */                            \
  X(connections_overdue)   /* connections closed by a timeout */                              \
  X(records_too_long)      /* connections closed because a record was too long */             \
  X(questions)             /* calls to an upstream */                                         \
  X(questions_cached)      /* queries answered from the cache */                              \
  X(questions_failed)      /* queries that failed or that the upstream refused */             \
  X(questions_timed_out)   /* queries that timed out */                                       \
  X(questions_refused)     /* queries refused because too many clients wait */                \
  X(handles_too_long)      /* mounts refused because a tag does not fit the handle */         \
  X(registrations_foreign) /* addresses that rpcbind has for another server */

/// Counters that the service for RPCSEC_GSS contexts uses as well.
// clang-format off
#define SLUICE_CONTEXT_STATISTICS(X)                                                                             \
  X(calls) X(malformed) X(denied)                                                                                \
  X(connections) X(connections_refused) X(connections_replaced) X(connections_overdue) X(records_too_long)       \
  X(questions) X(questions_failed) X(questions_timed_out)
// clang-format on

struct MountStatistics {
#define SLUICE_MOUNT_FIELD(name) std::atomic<std::uint64_t> name = 0;
  SLUICE_MOUNT_STATISTICS(SLUICE_MOUNT_FIELD)
#undef SLUICE_MOUNT_FIELD
};

inline void count(std::atomic<std::uint64_t>& counter) {
  counter.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace sluice::mount
