// SPDX-License-Identifier: Apache-2.0
//
// Counters of the MOUNT service, and of others that take calls by TCP. Written by its thread; any thread may read
// them.
#pragma once

#include <atomic>
#include <cstdint>

namespace sluice::mount {

// X(name): the names are label values of a metric.
#define SLUICE_MOUNT_STATISTICS(X)                                                        \
  X(calls)                 /* calls with a header that can be decoded */                  \
  X(malformed)             /* messages that are no call, and arguments with a defect */   \
  X(denied)                /* refused mounts of clients that the export is not for */     \
  X(connections)           /* TCP connections accepted */                                 \
  X(connections_refused)   /* closed at once: too many, of all or of one network */       \
  X(connections_replaced)  /* closed for a new one */                                     \
  X(connections_overdue)   /* closed: a call, its reply or the next call took too long */ \
  X(records_too_long)      /* connections closed for it */                                \
  X(questions)             /* calls to an upstream */                                     \
  X(questions_cached)      /* answered from what an upstream said before */               \
  X(questions_failed)      /* the upstream could not be reached, or refused */            \
  X(questions_timed_out)   /* the upstream did not answer */                              \
  X(questions_refused)     /* not asked: too many wait for the upstream */                \
  X(handles_too_long)      /* mounts refused: there is no room for a tag */               \
  X(registrations_foreign) /* addresses not registered: rpcbind has another server there */

/// Those that count for RPCSEC_GSS contexts as well.
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
