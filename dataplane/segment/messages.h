// SPDX-License-Identifier: Apache-2.0
//
// Messages between the planes through a reactor's rings (ReactorArea): connection setup, and hints.
// Everything else that the control plane sets is desired state (desired_state.h). Messages have a fixed size
// and are trivially copyable; the holder of a copy owns it. Commands that find the ring full wait in the
// control plane (controlplane/cm/outbox.h); each event type documents what its producer does then.
#pragma once

#include <array>
#include <cstdint>

#include "dataplane/segment/tables.h"
#include "pmd/datagram.h"
#include "pmd/rc_attributes.h"

namespace sluice::segment {

enum class CommandType : std::uint32_t {
  // The fields that a command uses are listed after the colon.
  /// Creates the connection for a client's request: cm_id, credits, inline sizes, the peer in attributes. If
  /// the driver has the request, also private data of the reply; otherwise all attributes and cm_state.
  /// CommandDone returns connection, incarnation and queue_pair.
  Accept,
  Reject,  ///< rejects a request that the driver has: cm_id, private data of the reply
  /// Reports that a connection requested by ConnectWanted is negotiated: connection, queue_pair, cm_id,
  /// inline size of the peer, attributes, cm_state.
  Connect,
  ConnectFailed,  ///< reports that a connection requested by ConnectWanted failed: connection, queue_pair
  Shutdown,       ///< terminates the data plane
};

struct Command {
  CommandType type{};
  std::uint32_t id = 0;  ///< returned in CommandDone; zero: no CommandDone is sent
  std::uint32_t cm_id = 0;
  std::uint32_t connection = 0;   ///< Connect, ConnectFailed
  std::uint32_t queue_pair = 0;   ///< Connect, ConnectFailed
  std::uint32_t services_at = 0;  ///< Accept: result of ConfigBlock::services_at()
  std::uint32_t credits = 0;      ///< upper bound for the connection's lifetime
  std::uint32_t first_grant = 0;  ///< initial credit grant
  std::uint32_t client_class = 0;
  std::uint32_t receive_inline_bytes = 0;  ///< our inline threshold
  std::uint32_t send_inline_bytes = 0;     ///< the peer's inline threshold
  std::uint32_t private_data_bytes = 0;
  std::byte private_data[rdma::kMaxPrivateData]{};
  rdma::RcAttributes attributes{};                  ///< Accept, Connect
  std::array<std::byte, kCmStateBytes> cm_state{};  ///< Accept, Connect
};

enum class EventType : std::uint32_t {
  ConnectRequest,  ///< answered by Accept or Reject. Ring full: stays pending and is reported later
  /// Requests a connection to a server: connection, incarnation, queue_pair, port, peer, local, path_mtu,
  /// private data. Ring full: sent later. Sent again to a control plane that takes over.
  ConnectWanted,
  ConnectionUp,    ///< hint to read the entry of `connection`. Ring full: dropped and counted
  ConnectionDown,  ///< hint like ConnectionUp
  /// Result of a command, in `status`. Ring full: sent later, and no further command is taken before that.
  CommandDone,
};

enum class CommandStatus : std::uint32_t { Done, UnknownConnection, NoRoom, Failed };

struct Event {
  EventType type{};
  std::uint32_t id = 0;    ///< CommandDone
  CommandStatus status{};  ///< CommandDone
  std::uint32_t cm_id = 0;
  std::uint32_t connection = 0;
  std::uint32_t incarnation = 0;  ///< incarnation of the connection; CommandDone: zero if there is none
  std::uint32_t queue_pair = 0;   ///< CommandDone of Accept; ConnectWanted; ConnectionDown
  std::uint32_t outgoing = 0;     ///< ConnectionDown: nonzero if the data plane opened it
  std::uint32_t reason = 0;       ///< ConnectionDown: rpcrdma::CloseReason
  std::uint32_t work_status = 0;  ///< ConnectionDown: rdma::WcStatus of the failed work request; zero if none
  std::uint32_t vendor_error = 0;  ///< ConnectionDown: the device's own number of that error; zero if none
  std::uint32_t port = 0;
  std::uint32_t peer_pid = 0;  ///< loopback: the client's process; zero if unknown
  PeerAddress peer;
  PeerAddress local{};         ///< ConnectWanted
  std::uint32_t path_mtu = 0;  ///< ConnectWanted: largest MTU that the device supports
  std::uint32_t private_data_bytes = 0;
  std::byte private_data[rdma::kMaxPrivateData]{};
};

/// Management datagram, passed between network and control plane without interpretation. Ring full: an upward
/// datagram is dropped, as on the wire, because connection management retransmits; a downward one waits in
/// the control plane.
struct Punt {
  rdma::Datagram datagram;
};

/// Part of an RDMA2_CONNPROP body (up) or of a host authentication body (down). The parts of one body are
/// consecutive in their ring. Ring full: the remaining parts wait.
struct PropertyPart {
  static constexpr std::uint32_t kBytes = 480;
  std::uint32_t connection = 0;
  std::uint32_t incarnation = 0;  ///< incarnation of the connection
  std::uint32_t first_set = 0;    ///< up: nonzero for the first set, which fixes properties 1 to 5
  std::uint32_t total_bytes = 0;
  std::uint32_t offset = 0;
  std::uint32_t bytes = 0;  ///< bytes in this part
  std::array<std::byte, kBytes> octets{};
};

}  // namespace sluice::segment
