// SPDX-License-Identifier: Apache-2.0
//
// Counters of the MOUNT service and of the service for RPCSEC_GSS contexts. Written by the service's thread;
// any thread may read them.
#pragma once

#include <atomic>
#include <cstdint>

#include "controlplane/onc_rpc/statistics.h"

// X(name). The names are label values of a metric.
#define SLUICE_MOUNT_STATISTICS(X)                                                          \
  X(calls)               /* calls with a header that can be decoded */                      \
  X(malformed)           /* messages that are not calls, and malformed arguments */         \
  X(denied)              /* mounts refused because the export does not permit the client */ \
  X(questions)           /* calls to an upstream */                                         \
  X(questions_cached)    /* queries answered from the cache */                              \
  X(questions_failed)    /* queries that failed or that the upstream refused */             \
  X(questions_timed_out) /* queries that timed out */                                       \
  X(questions_refused)   /* queries refused because too many clients wait */                \
  X(handles_too_long)    /* mounts refused because a tag does not fit the handle */

#define SLUICE_CONTEXT_STATISTICS(X)                                                         \
  X(calls)               /* calls with a header that can be decoded */                       \
  X(malformed)           /* messages that are not calls */                                   \
  X(denied)              /* calls refused because the upstream does not permit the client */ \
  X(questions)           /* calls forwarded to an upstream */                                \
  X(questions_failed)    /* forwarded calls without a reply */                               \
  X(questions_timed_out) /* forwarded calls that timed out */

namespace sluice::mount {

struct MountStatistics {
#define SLUICE_MOUNT_FIELD(name) std::atomic<std::uint64_t> name = 0;
  SLUICE_MOUNT_STATISTICS(SLUICE_MOUNT_FIELD)
#undef SLUICE_MOUNT_FIELD
  onc_rpc::ServerStatistics sockets;
};

using onc_rpc::count;

}  // namespace sluice::mount

namespace sluice::kerberos {

struct ContextStatistics {
#define SLUICE_CONTEXT_FIELD(name) std::atomic<std::uint64_t> name = 0;
  SLUICE_CONTEXT_STATISTICS(SLUICE_CONTEXT_FIELD)
#undef SLUICE_CONTEXT_FIELD
  onc_rpc::ServerStatistics sockets;
};

using onc_rpc::count;

}  // namespace sluice::kerberos
