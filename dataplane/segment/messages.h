// SPDX-License-Identifier: Apache-2.0
//
// Messages between the planes, through a reactor's rings (ReactorArea): what makes connections, and hints. All else
// that the control plane wants is state (wanted.h). Fixed size, trivially copyable; a message is owned by whoever holds
// the copy. Commands that find the ring full wait in the control plane (controlplane/outbox/outbox.h); each type of
// event states what its producer does then.
#pragma once

#include <array>
#include <cstdint>

#include "dataplane/segment/tables.h"
#include "pmd/datagram.h"
#include "pmd/rc_attributes.h"

namespace sluice::segment {

enum class CommandType : std::uint32_t {
  // After each colon: the fields that are used.
  Accept,  ///< make the connection of a client's request: cm_id, credits, inline sizes, the peer in attributes. Where the
  ///< driver has the request, private data of the reply; otherwise all attributes, and cm_state. CommandDone
  ///< returns connection, incarnation and queue_pair
  Reject,   ///< reject a request that the driver has: cm_id, private data of the reply
  Connect,  ///< a connection requested by ConnectWanted is negotiated: connection, queue_pair, cm_id, inline
            ///< size of the peer, attributes, cm_state
  ConnectFailed,  ///< a connection requested by ConnectWanted failed: connection, queue_pair
  Shutdown,       ///< terminate the data plane
};

struct Command {
  CommandType type{};
  std::uint32_t id = 0;  ///< returned in CommandDone; zero: no CommandDone is sent
  std::uint32_t cm_id = 0;
  std::uint32_t connection = 0;   ///< Connect, ConnectFailed
  std::uint32_t queue_pair = 0;   ///< Connect, ConnectFailed
  std::uint32_t services_at = 0;  ///< Accept: as ConfigBlock::services_at() says
  std::uint32_t credits = 0;      ///< upper bound for the connection's lifetime
  std::uint32_t first_grant = 0;  ///< credits granted at first
  std::uint32_t client_class = 0;
  std::uint32_t receive_inline_bytes = 0;  ///< our inline threshold
  std::uint32_t send_inline_bytes = 0;     ///< the peer's inline threshold
  std::uint32_t private_data_bytes = 0;
  std::byte private_data[rdma::kMaxPrivateData]{};
  rdma::RcAttributes attributes{};                  ///< Accept, Connect
  std::array<std::byte, kCmStateBytes> cm_state{};  ///< Accept, Connect
};

enum class EventType : std::uint32_t {
  ConnectRequest,  ///< answered by Accept or Reject. Ring full: stays pending, reported again later
  ConnectWanted,   ///< requests a connection to a server: connection, incarnation, queue_pair, port, peer,
                   ///< local, path_mtu, private data. Ring full: sent later; sent again to a control plane
                   ///< that takes over
  ConnectionUp,    ///< a hint to look at the entry of `connection`. Ring full: dropped and counted
  ConnectionDown,  ///< as ConnectionUp
  CommandDone,  ///< result of a command, in `status`. Ring full: sent later, and before that no further command
                ///< is taken
};

enum class CommandStatus : std::uint32_t { Done, UnknownConnection, NoRoom, Failed };

struct Event {
  EventType type{};
  std::uint32_t id = 0;    ///< CommandDone
  CommandStatus status{};  ///< CommandDone
  std::uint32_t cm_id = 0;
  std::uint32_t connection = 0;
  std::uint32_t incarnation = 0;  ///< of the connection; CommandDone: zero without one
  std::uint32_t queue_pair = 0;   ///< CommandDone of Accept; ConnectWanted; ConnectionDown
  std::uint32_t outgoing = 0;     ///< ConnectionDown: nonzero if the data plane opened it
  std::uint32_t reason = 0;       ///< ConnectionDown: rpcrdma::CloseReason
  std::uint32_t port = 0;
  std::uint32_t peer_pid = 0;  ///< loopback: the client's process; zero if unknown
  PeerAddress peer;
  PeerAddress local{};         ///< ConnectWanted
  std::uint32_t path_mtu = 0;  ///< ConnectWanted: largest that the device supports
  std::uint32_t private_data_bytes = 0;
  std::byte private_data[rdma::kMaxPrivateData]{};
};

/// A management datagram, passed between network and control plane without being interpreted. Ring full:
/// upwards dropped, as on the wire, since connection management retransmits; downwards it waits in the control plane.
struct Punt {
  rdma::Datagram datagram;
};

/// Part of an RDMA2_CONNPROP body (up) or of a host authentication body (down). The parts of one body are
/// consecutive in their ring. Ring full: the remaining parts wait.
struct PropertyPart {
  static constexpr std::uint32_t kBytes = 480;
  std::uint32_t connection = 0;
  std::uint32_t incarnation = 0;  ///< of the connection
  std::uint32_t first_set = 0;    ///< up: nonzero for the first set, which fixes properties 1 to 5
  std::uint32_t total_bytes = 0;
  std::uint32_t offset = 0;
  std::uint32_t bytes = 0;  ///< in this part
  std::array<std::byte, kBytes> octets{};
};

}  // namespace sluice::segment
