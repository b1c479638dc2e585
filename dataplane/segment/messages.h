// SPDX-License-Identifier: Apache-2.0
//
// What the planes say to each other through a reactor's rings. Fixed size, trivially copyable.
#pragma once

#include <cstdint>

#include "pmd/rdma.h"

namespace sluice::segment {

enum class CommandType : std::uint32_t {
  Accept,      ///< a ConnectRequest: cm_id, credits, inline sizes, private data of the answer
  Reject,      ///< a ConnectRequest: cm_id, private data of the answer
  Close,       ///< a connection: connection
  Abandon,     ///< a connection whose peer process has died: cm_id
  SetCredits,  ///< a connection: connection, credits
  Shutdown,    ///< the data plane ends
};

struct Command {
  CommandType type{};
  std::uint32_t id = 0;  ///< comes back in CommandDone
  std::uint32_t cm_id = 0;
  std::uint32_t connection = 0;
  std::uint32_t credits = 0;
  std::uint32_t receive_inline_bytes = 0;  ///< ours
  std::uint32_t send_inline_bytes = 0;     ///< the peer's
  std::uint32_t private_data_bytes = 0;
  std::byte private_data[rdma::kMaxPrivateData]{};
};

enum class EventType : std::uint32_t {
  ConnectRequest,  ///< asks for Accept or Reject. Ring full: the request stays pending and is told again
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
  std::uint32_t reason = 0;  ///< ConnectionDown: rpcrdma::CloseReason
  std::uint32_t port = 0;
  std::uint32_t peer_pid = 0;  ///< loopback: process of the client; zero when not known
  rdma::PeerAddress peer;
  std::uint32_t private_data_bytes = 0;
  std::byte private_data[rdma::kMaxPrivateData]{};
};

/// A whole frame that the data plane does not interpret: connection-management datagrams, property messages.
struct Punt {
  std::uint32_t bytes = 0;
  std::uint32_t queue_pair = 0;
  std::byte frame[504]{};
};
static_assert(sizeof(Punt) == 512);

}  // namespace sluice::segment
