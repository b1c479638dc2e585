// SPDX-License-Identifier: Apache-2.0
//
// Vocabulary of connection management: states and events of a connection (InfiniBand Architecture
// Specification volume 1, 12.9), the values that agent and consumer exchange, and counters. Value types;
// any thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "dataplane/base/net_address.h"

namespace sluice::cm {

enum class State : std::uint8_t {
  RequestSent,      ///< active: waits for the peer's reply or reject
  ReplyReceived,    ///< active: waits for the consumer to make its queue pair ready
  RequestReceived,  ///< passive: waits for the consumer's accept or reject
  ReplySent,        ///< passive: waits for ready-to-use, or a packet on the queue pair
  Established,      ///< waits for either side to disconnect
  DisconnectSent,   ///< waits for the disconnect reply
  TimeWait,         ///< waits until no message of the connection can be in flight
};
inline constexpr std::size_t kStates = 7;
const char* to_string(State state) noexcept;

enum class Event : std::uint8_t {
  RequestAgain,
  Reply,
  Reject,
  ReceiptAcknowledged,
  ReadyToUse,
  DisconnectRequest,
  DisconnectReply,
  Timer,
  PacketArrived,  ///< a packet has arrived on the queue pair
  Accepted,       ///< this and the next three are calls of the consumer
  Ready,
  Refused,
  Disconnect,
  Evicted,  ///< the table, or the source's share of it, is full
};
inline constexpr std::size_t kEvents = 14;

/// Local communication identifier, never zero.
enum class Id : std::uint32_t {};

/// Addresses of a connection's datagrams. `link` is the link address of the last hop of the most recent
/// datagram, or all zero if unknown.
struct Endpoint {
  PeerAddress local;
  PeerAddress remote;
  LinkAddress link{};
};

/// The peer's values for the consumer's queue pair.
struct PeerParameters {
  Endpoint endpoint;
  std::uint16_t port = 0;  ///< port of the service; requests only
  std::uint32_t qpn = 0;
  std::uint32_t send_psn = 0;  ///< sequence number of the first packet that this side sends
  std::uint16_t path_mtu = 1024;
  std::uint8_t responder_resources = 0;  ///< limit of RDMA Reads by the peer at this side
  std::uint8_t initiator_depth = 0;      ///< limit of RDMA Reads by this side at the peer
  std::uint8_t ack_timeout = 0;
  std::uint8_t retry_count = 7;
  std::uint8_t rnr_retry = 7;
  std::uint8_t traffic_class = 0;       ///< requested for both directions; requests only
  std::uint8_t service_level = 0;       ///< requested for both directions; requests only
  std::vector<std::byte> private_data;  ///< the consumer's part of the private data
};

/// Values of the consumer's own queue pair.
struct OwnParameters {
  std::uint32_t qpn = 0;
  std::uint32_t receive_psn = 0;  ///< sequence number of the first packet that the peer sends
  std::uint8_t responder_resources = 16;
  std::uint8_t initiator_depth = 16;
  std::uint8_t rnr_retry = 7;
  std::vector<std::byte> private_data;
};

/// State that another agent needs to take over a connection with a queue pair. Trivially copyable, for the
/// connection table.
struct Snapshot {
  std::uint32_t id = 0;
  std::uint32_t remote_id = 0;
  std::uint64_t transaction_id = 0;
  std::uint32_t local_qpn = 0;
  std::uint32_t remote_qpn = 0;
  Endpoint endpoint;
  // Values for a reply that has to be sent again.
  std::uint8_t has_own = 0;  ///< nonzero if the next members are set; agents of earlier releases left zeros
  std::uint8_t responder_resources = 0;
  std::uint8_t initiator_depth = 0;
  std::uint8_t rnr_retry = 0;
  std::uint32_t receive_psn = 0;

  void set_own(const OwnParameters& own) {
    has_own = 1;
    responder_resources = own.responder_resources;
    initiator_depth = own.initiator_depth;
    rnr_retry = own.rnr_retry;
    receive_psn = own.receive_psn;
  }
};

/// Progress of a connection with a snapshot at the time when its agent was lost.
struct Progress {
  bool active = false;                      ///< this side has requested the connection
  bool confirmed = true;                    ///< passive: the peer is known to be ready
  std::span<const std::byte> private_data;  ///< passive: the consumer's private data of the reply
};

/// Counters of connection management.
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
