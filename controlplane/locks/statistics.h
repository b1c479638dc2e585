// SPDX-License-Identifier: Apache-2.0
//
// Counters of the lock proxy. Written by its thread; any thread may read them.
#pragma once

#include <atomic>
#include <cstdint>

#include "controlplane/onc_rpc/statistics.h"

namespace sluice::locks {

// X(name). The names are label values of a metric.
#define SLUICE_LOCK_STATISTICS(X)                                                \
  X(tests)            /* calls of TEST */                                        \
  X(locks)            /* calls of LOCK and NM_LOCK */                            \
  X(cancels)          /* calls of CANCEL */                                      \
  X(unlocks)          /* calls of UNLOCK */                                      \
  X(grants)           /* calls of GRANTED and GRANTED_MSG of the upstream */     \
  X(grants_delivered) /* grants that the client accepted */                      \
  X(grants_refused)   /* grants refused: no waiter, or unreachable client */     \
  X(repeated)         /* retransmissions of outstanding calls */                 \
  X(asked_again)      /* LOCKs sent again for waiting clients */                 \
  X(exhausted)        /* calls denied because a limit was reached */             \
  X(denied)           /* calls of hosts that are not permitted */                \
  X(malformed)        /* messages that are not calls, and malformed arguments */ \
  X(resent)           /* retransmitted calls to an upstream or a client */       \
  X(client_reboots)   /* hosts whose locks were released */                      \
  X(upstream_reboots) /* notices of the upstream's restart */                    \
  X(notices)          /* clients notified of a restart of the upstream */        \
  X(notices_failed)   /* clients that could not be notified */                   \
  X(notices_unknown)  /* notices about hosts without locks, or from other addresses */

struct LockStatistics {
#define SLUICE_LOCK_FIELD(name) std::atomic<std::uint64_t> name = 0;
  SLUICE_LOCK_STATISTICS(SLUICE_LOCK_FIELD)
#undef SLUICE_LOCK_FIELD
  /// Counters of sockets and registrations.
  onc_rpc::ServerStatistics sockets;
  // Current numbers of held ranges, owners and waiting requests.
  std::atomic<std::uint64_t> held = 0;
  std::atomic<std::uint64_t> owners = 0;
  std::atomic<std::uint64_t> waiting = 0;
};

using onc_rpc::count;

}  // namespace sluice::locks
