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
  X(malformed, "datagrams that are no connection-management message")             \
  X(unexpected, "messages that their connection's state does not expect")         \
  X(unknown, "messages for connections that are not known")                       \
  X(requests, "connection requests")                                              \
  X(duplicate_requests, "connection requests that came again")                    \
  X(stale, "requests for a queue pair that another connection has")               \
  X(refused_service, "requests for a service that is not offered")                \
  X(refused_parameters, "requests whose parameters are invalid or not supported") \
  X(refused_resources, "requests above a limit on connections")                   \
  X(retransmissions, "messages sent again")                                       \
  X(timeouts, "messages that were never answered")                                \
  X(established, "connections established")                                       \
  X(ended, "connections ended")                                                   \
  X(evicted, "ended connections that made room for others before their time")
#define SLUICE_CM_FIELD(name, help) std::uint64_t name = 0;
  SLUICE_CM_STATISTICS(SLUICE_CM_FIELD)
#undef SLUICE_CM_FIELD
};

}  // namespace sluice::cm
