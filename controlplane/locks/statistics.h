// SPDX-License-Identifier: Apache-2.0
//
// Counters of the lock proxy. Written by its thread; any thread may read them.
#pragma once

#include <atomic>
#include <cstdint>

#include "controlplane/mount/statistics.h"

namespace sluice::locks {

// X(name): the names are label values of a metric.
#define SLUICE_LOCK_STATISTICS(X)                                                          \
  X(tests)            /* calls of TEST */                                                  \
  X(locks)            /* calls of LOCK and NM_LOCK */                                      \
  X(cancels)          /* calls of CANCEL */                                                \
  X(unlocks)          /* calls of UNLOCK */                                                \
  X(grants)           /* calls of GRANTED and GRANTED_MSG of the upstream */               \
  X(grants_delivered) /* of these, taken by the client */                                  \
  X(grants_refused)   /* of these, refused: nobody waits, or the client is out of reach */ \
  X(repeated)         /* calls that came again while they were outstanding */              \
  X(exhausted)        /* calls denied because a limit was reached */                       \
  X(denied)           /* calls of hosts that may not call */                               \
  X(malformed)        /* messages that are no call, and arguments with a defect */         \
  X(resent)           /* calls to an upstream or a client that were sent again */          \
  X(client_reboots)   /* hosts whose locks were released */                                \
  X(upstream_reboots) /* notices of the upstream's restart */                              \
  X(notices)          /* clients told of it */                                             \
  X(notices_failed)   /* clients that could not be told */                                 \
  X(notices_unknown)  /* notices about hosts without locks here, or from another address */

/// Those of mount/statistics.h that count here too.
// clang-format off
#define SLUICE_LOCK_SOCKET_STATISTICS(X)                                                                         \
  X(connections) X(connections_refused) X(connections_replaced) X(connections_overdue) X(records_too_long)       \
  X(registrations_foreign)
// clang-format on

struct LockStatistics {
#define SLUICE_LOCK_FIELD(name) std::atomic<std::uint64_t> name = 0;
  SLUICE_LOCK_STATISTICS(SLUICE_LOCK_FIELD)
#undef SLUICE_LOCK_FIELD
  /// Of sockets and registrations.
  mount::MountStatistics sockets;
  // How many there are now.
  std::atomic<std::uint64_t> held = 0;
  std::atomic<std::uint64_t> owners = 0;
  std::atomic<std::uint64_t> waiting = 0;
};

using mount::count;

}  // namespace sluice::locks
