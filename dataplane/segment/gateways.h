// SPDX-License-Identifier: Apache-2.0
//
// Counters and gauges of the gateways: upstream servers that a reactor forwards calls to, and the reverse
// gateway with clients over TCP and calls to the server over RDMA. Each area has one writer, its reactor. The
// words are relaxed atomics that any thread or process may read.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "dataplane/base/last_value.h"
#include "dataplane/base/net_address.h"
#include "dataplane/base/seqlock.h"
#include "dataplane/segment/counters.h"
#include "dataplane/segment/histogram.h"
#include "dataplane/segment/tables.h"

namespace sluice::segment {

inline constexpr std::uint32_t kMaxUpstreams = 8;

// X(name, help)
#define SLUICE_UPSTREAM_COUNTERS(X)                                                                         \
  X(calls, "Calls sent to the upstream, including retransmissions")                                         \
  X(replies, "Replies of the upstream that matched an outstanding call")                                    \
  X(resent, "Calls retransmitted because their connection was lost or the upstream had dropped them")       \
  X(retransmissions, "Retransmission timers that expired while the upstream answered other calls")          \
  X(timeouts, "Calls not answered within call_timeout_s, whose clients were disconnected")                  \
  X(given_up, "Calls after which each of their connections was lost, whose clients were disconnected")      \
  X(probes, "NULL calls sent to probe an upstream that was silent while calls were outstanding")            \
  X(silent_resets, "Connections replaced because the upstream was silent on them for too long")             \
  X(port_changes,                                                                                           \
    "Connections replaced from another port, because theirs was in use or all attempts timed out")          \
  X(abandoned, "Calls whose client disconnected before they were answered")                                 \
  X(waits_earlier, "Calls that waited for an earlier call of their client, or for its reply")               \
  X(replayed, "Retransmitted calls that were answered from the duplicate request cache")                    \
  X(unkept_replies, "Replies too long for the duplicate request cache")                                     \
  X(evicted_replies,                                                                                        \
    "Cached replies evicted within two minutes; a retransmission of their call is executed again")          \
  X(orphans, "Calls whose clients disconnected while the calls were outstanding at the upstream")           \
  X(lost_orphans, "Such calls beyond the limit of the cache; a retransmission of them is executed again")   \
  X(unmatched_replies,                                                                                      \
    "Replies that match no outstanding call: late, for clients that have disconnected, or forged")          \
  X(bad_records, "Records that are not RPC messages, and invalid record lengths")                           \
  X(long_records,                                                                                           \
    "Replies longer than any valid reply; their calls end as if they were too long for the client")         \
  X(duplicate_xids,                                                                                         \
    "Calls with RPCSEC_GSS whose XID was outstanding already, whose clients were disconnected")             \
  X(unrepeatable,                                                                                           \
    "Calls with RPCSEC_GSS that lost their connection, whose clients were disconnected: a signature is "    \
    "good for one sending")                                                                                 \
  X(unassociated,                                                                                           \
    "Calls of NFS 4.1 retransmitted on the dedicated connection of their client, to which the session is "  \
    "bound")                                                                                                \
  X(connects, "Connections to the upstream that were established")                                          \
  X(connect_failures, "Connections to the upstream that could not be established")                          \
  X(disconnects, "Connections to the upstream that ended")                                                  \
  X(address_changes, "Times that another of the upstream's addresses was chosen for its connections")       \
  X(moves, "Connections closed to be established again at another address")                                 \
  X(connections_taken,                                                                                      \
    "Connections to an RDMA upstream released because their client had no calls and another client waited") \
  X(callbacks, "Calls of the upstream that were passed on to their client")                                 \
  X(callbacks_refused, "Calls of the upstream that no client could take")                                   \
  X(waits_number, "Calls that waited for a share of forward.max_calls, or for a connection")                \
  X(waits_room, "Calls that waited for the connection or for room in its queue")                            \
  X(waits_memory, "Calls that waited for memory for their replies")                                         \
  X(unknown_handles,                                                                                        \
    "Calls with a file handle of none of the upstreams with exports of their own, refused (STALE or "       \
    "BADHANDLE); counted at the first of them")                                                             \
  X(unknown_operations,                                                                                     \
    "Calls of NFS 4 ended at an operation that the gateway does not know (NFS4ERR_OP_ILLEGAL)")             \
  X(across_upstreams, "RENAME and LINK from this upstream to another one, refused (XDEV)")                  \
  X(long_handles, "File handles of the upstream that leave no room for a tag, kept from clients")           \
  X(signed_calls_refused,                                                                                   \
    "Calls with RPCSEC_GSS to upstreams with exports of their own; counted at the first of them")           \
  X(sent_bytes, "Bytes sent to the upstream")                                                               \
  X(received_bytes, "Bytes received from the upstream")

enum class UpstreamCounter : std::uint32_t {
#define SLUICE_UPSTREAM_COUNTER(name, help) name,
  SLUICE_UPSTREAM_COUNTERS(SLUICE_UPSTREAM_COUNTER)
#undef SLUICE_UPSTREAM_COUNTER
      kCount
};

inline constexpr CounterInfo kUpstreamCounters[] = {
#define SLUICE_UPSTREAM_COUNTER(name, help) {#name, "upstream", help},
    SLUICE_UPSTREAM_COUNTERS(SLUICE_UPSTREAM_COUNTER)
#undef SLUICE_UPSTREAM_COUNTER
};

/// Pools that the clients of an upstream share: slots for outstanding calls, and memory for their replies.
inline constexpr std::array<const char*, 3> kUpstreamPools = {"numbers", "short replies", "long replies"};

/// State of one upstream on one reactor.
struct UpstreamArea {
  static_assert(static_cast<std::size_t>(UpstreamCounter::kCount) <= kUpstreamCounterRoom);
  std::array<std::atomic<std::uint64_t>, kUpstreamCounterRoom> counters{};
  std::atomic<std::uint32_t> connections{0};  ///< established connections
  /// Connections being established or waiting for the next attempt.
  std::atomic<std::uint32_t> connecting{0};
  std::atomic<std::uint32_t> outstanding{0};  ///< calls sent and not answered
  std::atomic<std::uint32_t> waiting{0};      ///< calls that could not be sent yet
  /// Lowest limit of any client whose calls wait here; zero: none.
  std::atomic<std::uint32_t> credit_limit{0};
  std::atomic<std::uint32_t> uring_features{0};  ///< UringFeatures in use; none over RDMA
  SeqLock<PeerAddress> address{};                ///< address of new connections; all zero: unknown
  std::array<PoolUse, kUpstreamPools.size()> pools{};
  LastValue unknown_operation{};  ///< number of the operation of NFS 4 that was refused as unknown last
  Histogram upstream_ns;          ///< time from sending the call to the last byte of its reply
  Histogram gateway_ns;           ///< time from the service's execute() to sending the call

  /// Resets the gauges after the upstream has been drained. Called by the single writer.
  void clear_gauges() noexcept {
    for (auto* const gauge :
         {&connections, &connecting, &outstanding, &waiting, &credit_limit, &uring_features})
      gauge->store(0, std::memory_order_relaxed);
    for (PoolUse& pool : pools)
      for (auto* const gauge : {&pool.buffers, &pool.held, &pool.waiting})
        gauge->store(0, std::memory_order_relaxed);
  }
  /// Resets the counters when the slot is assigned to another upstream. Called by the single writer; gauges
  /// are updated anyway.
  void clear() noexcept {
    for (auto& counter : counters) counter.store(0, std::memory_order_relaxed);
    address.write({});
    unknown_operation.clear();
    upstream_ns.clear();
    gateway_ns.clear();
  }
};

// X(name, help)
#define SLUICE_REVERSE_COUNTERS(X)                                                                           \
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
  X(unknown_operations,                                                                                      \
    "Calls of NFS 4 ended at an operation that the gateway does not know (NFS4ERR_OP_ILLEGAL)")              \
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

enum class ReverseCounter : std::uint32_t {
#define SLUICE_REVERSE_COUNTER(name, help) name,
  SLUICE_REVERSE_COUNTERS(SLUICE_REVERSE_COUNTER)
#undef SLUICE_REVERSE_COUNTER
      kCount
};

inline constexpr CounterInfo kReverseCounters[] = {
#define SLUICE_REVERSE_COUNTER(name, help) {#name, "reverse", help},
    SLUICE_REVERSE_COUNTERS(SLUICE_REVERSE_COUNTER)
#undef SLUICE_REVERSE_COUNTER
};

struct ReverseArea {
  static_assert(static_cast<std::size_t>(ReverseCounter::kCount) <= kReverseCounterRoom);
  std::array<std::atomic<std::uint64_t>, kReverseCounterRoom> counters{};
  std::atomic<std::uint32_t> clients{0};      ///< TCP connections
  std::atomic<std::uint32_t> connected{0};    ///< open connections to the server
  std::atomic<std::uint32_t> outstanding{0};  ///< calls received and not answered
  LastValue unknown_operation{};  ///< number of the operation of NFS 4 that was refused as unknown last
  Histogram server_ns;            ///< from receiving a call to the server's reply
};

}  // namespace sluice::segment
