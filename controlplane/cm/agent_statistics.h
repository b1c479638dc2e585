// SPDX-License-Identifier: Apache-2.0
//
// Counters of connection management. Value types; single-threaded.
#pragma once

#include <cstdint>

namespace sluice::cm {

struct AgentStatistics {
#define SLUICE_CM_STATISTICS(X)                                                   \
  X(received, "datagrams received")                                               \
  X(sent, "datagrams sent")                                                       \
  X(malformed, "datagrams that are not connection-management messages")           \
  X(unexpected, "messages that are invalid in their connection's state")          \
  X(unknown, "messages for unknown connections")                                  \
  X(requests, "connection requests")                                              \
  X(duplicate_requests, "retransmitted connection requests")                      \
  X(stale, "requests for a queue pair that another connection has")               \
  X(refused_service, "requests for a service that is not available")              \
  X(refused_parameters, "requests whose parameters are invalid or not supported") \
  X(refused_resources, "requests above a limit on connections")                   \
  X(retransmissions, "messages retransmitted")                                    \
  X(timeouts, "messages that were never answered")                                \
  X(established, "connections established")                                       \
  X(ended, "connections ended")                                                   \
  X(evicted, "ended connections that were evicted before the end of time wait")
#define SLUICE_CM_FIELD(name, help) std::uint64_t name = 0;
  SLUICE_CM_STATISTICS(SLUICE_CM_FIELD)
#undef SLUICE_CM_FIELD
};

}  // namespace sluice::cm
