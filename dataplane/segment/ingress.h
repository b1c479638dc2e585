// SPDX-License-Identifier: Apache-2.0
//
// Counters and gauges of the reverse gateway: clients over TCP, calls to the server over RDMA. Each area has
// one writer, its reactor. The words are relaxed atomics that any thread or process may read.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "dataplane/segment/counters.h"
#include "dataplane/segment/histogram.h"

namespace sluice::segment {

// X(name, help)
#define SLUICE_INGRESS_COUNTERS(X)                                                                           \
  X(clients_accepted, "TCP connections accepted from clients")                                               \
  X(clients_refused, "TCP connections closed immediately: address not permitted")                            \
  X(clients_unprivileged,                                                                                    \
    "TCP connections closed immediately: source port not below 1024 (privileged_clients)")                   \
  X(clients_ended, "TCP connections of clients that have ended")                                             \
  X(clients_stuck, "TCP connections closed because a record or a reply made no progress")                    \
  X(clients_evicted, "TCP connections of clients ended to make room for another client")                     \
  X(clients_over_share,                                                                                      \
    "TCP connections refused because all client entries were in use and their host held its share")          \
  X(calls, "Calls of clients forwarded to the server")                                                       \
  X(replies, "Replies of the server sent to clients")                                                        \
  X(failures, "Calls that the server refused with an error of RPC-over-RDMA: answered with SYSTEM_ERR")      \
  X(timeouts, "Calls that the server did not answer within call_timeout_s, among those lost")                \
  X(calls_lost, "Calls that can no longer get a reply, whose client was disconnected to retransmit them")    \
  X(clients_reset, "TCP connections closed so that the client retransmits its calls")                        \
  X(probes, "NULL calls sent to probe a silent server")                                                      \
  X(server_resets, "Connections to the server replaced because it answered no calls, not even NULL")         \
  X(retransmissions, "Retransmission timers that expired while the server answered other calls")             \
  X(bad_records, "Records of clients that are not RPC messages, and invalid record lengths")                 \
  X(long_records, "Records of clients that are longer than any call")                                        \
  X(bad_calls,                                                                                               \
    "Calls refused by the gateway: another RPC version, a credential that is too long, or AUTH_TLS")         \
  X(duplicate_calls, "Retransmissions of clients that were not forwarded, as the call is outstanding")       \
  X(reduced_calls, "Calls whose data the server reads by RDMA")                                              \
  X(placed_replies, "Replies whose data the server wrote by RDMA")                                           \
  X(dials, "Connections to the server that were started")                                                    \
  X(dials_failed, "Connections to the server not started for lack of resources")                             \
  X(disconnects, "Connections to the server that ended or failed while their client was connected")          \
  X(callbacks, "Calls of the server passed on to clients")                                                   \
  X(callbacks_refused, "Calls of the server that no client could take or answer")                            \
  X(waits_client,                                                                                            \
    "Times that the last free client entry was used; new TCP connections wait or go to another reactor")     \
  X(waits_connection, "Times that a client with a call waited for a connection to the server")               \
  X(connections_taken,                                                                                       \
    "Connections to the server released because their client had no calls and another client waited")        \
  X(waits_call, "Times that a client's next call waited because the limit of outstanding calls was reached") \
  X(waits_memory, "Times that a client's next call waited for memory")                                       \
  X(sent_bytes, "Bytes sent to clients")                                                                     \
  X(received_bytes, "Bytes received from clients")

enum class IngressCounter : std::uint32_t {
#define SLUICE_INGRESS_COUNTER(name, help) name,
  SLUICE_INGRESS_COUNTERS(SLUICE_INGRESS_COUNTER)
#undef SLUICE_INGRESS_COUNTER
      kCount
};

inline constexpr CounterInfo kIngressCounters[] = {
#define SLUICE_INGRESS_COUNTER(name, help) {#name, "ingress", help},
    SLUICE_INGRESS_COUNTERS(SLUICE_INGRESS_COUNTER)
#undef SLUICE_INGRESS_COUNTER
};

struct IngressArea {
  static_assert(static_cast<std::size_t>(IngressCounter::kCount) <= kIngressCounterRoom);
  std::array<std::atomic<std::uint64_t>, kIngressCounterRoom> counters{};
  std::atomic<std::uint32_t> clients{0};      ///< TCP connections
  std::atomic<std::uint32_t> connected{0};    ///< open connections to the server
  std::atomic<std::uint32_t> outstanding{0};  ///< calls received and not answered
  Histogram server_ns;                        ///< from receiving a call to the server's reply
};

}  // namespace sluice::segment
