// SPDX-License-Identifier: Apache-2.0
//
// What the planes say to each other through a reactor's rings. Fixed size, trivially copyable.
#pragma once

#include <array>
#include <cstdint>

#include "dataplane/segment/tables.h"
#include "pmd/datagram.h"
#include "pmd/rc_attributes.h"

namespace sluice::segment {

enum class CommandType : std::uint32_t {
  Accept,     ///< a ConnectRequest: cm_id, credits, inline sizes, private data of the answer
  Reject,     ///< a ConnectRequest: cm_id, private data of the answer
  Establish,  ///< makes a connection that the control plane's own connection management has agreed on: cm_id,
              ///< credits, inline sizes, attributes, cm_state. CommandDone tells connection and queue_pair
  Connect,  ///< a connection that ConnectWanted asked for is agreed on: connection, queue_pair, cm_id, inline
            ///< size of the peer, attributes, cm_state
  ConnectFailed,  ///< it has not come about: connection, queue_pair
  Established,    ///< the peer is ready: cm_id
  Ended,          ///< the peer has ended the connection: cm_id
  Close,          ///< a connection: connection, reason
  Drain,          ///< closes a connection as soon as it has no call: connection, cm_id
  Abandon,        ///< a connection whose peer process has died: cm_id
  SetCredits,     ///< a connection: connection, cm_id, first_grant, client_class
  Trace,          ///< notes the calls of a connection, or ends that: connection, cm_id, on
  SetParameters,  ///< version 2, what follows from the peer's properties: connection, cm_id, parameters
  Admit,          ///< version 2: the peer has shown who it is: connection, cm_id
  Shutdown,       ///< the data plane ends
};

/// What rpcrdma::v2::Agreement says.
struct Parameters {
  std::uint32_t send_bytes = 0;
  std::uint32_t max_segment_bytes = 0;
  std::uint32_t max_segments = 0;
  std::uint32_t reverse = 0;
};

struct Command {
  CommandType type{};
  std::uint32_t id = 0;  ///< comes back in CommandDone; zero: nobody wants to know
  std::uint32_t cm_id = 0;
  std::uint32_t connection = 0;
  std::uint32_t queue_pair = 0;   ///< Connect, ConnectFailed
  std::uint32_t credits = 0;      ///< most that the connection can ever have
  std::uint32_t first_grant = 0;  ///< that it has now
  std::uint32_t client_class = 0;
  std::uint32_t on = 0;                    ///< Trace
  std::uint32_t reason = 0;                ///< Close: rpcrdma::CloseReason
  Parameters parameters{};                 ///< SetParameters
  std::uint32_t receive_inline_bytes = 0;  ///< ours
  std::uint32_t send_inline_bytes = 0;     ///< the peer's
  std::uint32_t private_data_bytes = 0;
  std::byte private_data[rdma::kMaxPrivateData]{};
  rdma::RcAttributes attributes{};                  ///< Establish, Connect
  std::array<std::byte, kCmStateBytes> cm_state{};  ///< Establish, Connect
};

enum class EventType : std::uint32_t {
  ConnectRequest,  ///< asks for Accept or Reject. Ring full: the request stays pending and is told again
  ConnectWanted,   ///< asks for a connection to a server: connection, queue_pair, port, peer, local,
                   ///< path_mtu, private data. Ring full: told later, and again to a control plane
                   ///< that takes over
  ConnectionUp,    ///< Ring full: lost and counted; the connection table has it
  ConnectionDown,  ///< the same
  CommandDone,     ///< the same; status tells
};

enum class CommandStatus : std::uint32_t { Done, UnknownConnection, NoRoom, Failed };

struct Event {
  EventType type{};
  std::uint32_t id = 0;    ///< CommandDone
  CommandStatus status{};  ///< CommandDone
  std::uint32_t cm_id = 0;
  std::uint32_t connection = 0;
  std::uint32_t queue_pair = 0;  ///< CommandDone of Establish; ConnectWanted; ConnectionDown
  std::uint32_t outgoing = 0;    ///< ConnectionDown: the data plane opened it
  std::uint32_t reason = 0;      ///< ConnectionDown: rpcrdma::CloseReason
  std::uint32_t port = 0;
  std::uint32_t peer_pid = 0;  ///< loopback: process of the client; zero when not known
  PeerAddress peer;
  PeerAddress local{};         ///< ConnectWanted
  std::uint32_t path_mtu = 0;  ///< ConnectWanted: largest of the device
  std::uint32_t private_data_bytes = 0;
  std::byte private_data[rdma::kMaxPrivateData]{};
};

/// What the data plane does not interpret: management datagrams, for connection management.
struct Punt {
  rdma::Datagram datagram;
};

/// A part of the body of an RDMA2_CONNPROP on its way up, or of host authentication on its way down. The
/// parts of one are neighbours in their ring. Ring full: the rest waits.
struct PropertyPart {
  static constexpr std::uint32_t kBytes = 480;
  std::uint32_t connection = 0;
  std::uint32_t cm_id = 0;
  std::uint32_t first_set = 0;  ///< up: the set that fixes properties 1 to 5
  std::uint32_t total_bytes = 0;
  std::uint32_t offset = 0;
  std::uint32_t bytes = 0;  ///< in this part
  std::array<std::byte, kBytes> octets{};
};

}  // namespace sluice::segment
