// SPDX-License-Identifier: Apache-2.0
//
// Reverse-direction calls of the server to one TCP client (RFC 8167): forwarded unchanged, and completed with
// the client's reply. A call waits as long as its client and its connection are there: how long the server
// waits for the answer is its own affair. Only the reactor of the client may call; no allocation. Calls belong
// to the transport.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "dataplane/gateway/rdma_server/server_user.h"
#include "dataplane/service/api/service.h"
#include "dataplane/tcp/send_queue.h"

namespace sluice::tcp_clients {

/// Longest call of the server. Callbacks have a few hundred bytes.
inline constexpr std::size_t kMaxServerCallBytes = tcp::kSendRingBytes / 2;

class ServerCalls {
 public:
  /// Takes the call, and queues it to the client when there is room. False, with no effect: it is longer than
  /// kMaxServerCallBytes, or the server has more outstanding than it was granted.
  bool start(service::Call& call, tcp::SendQueue& queue) noexcept;
  /// Queues the calls that wait for room. True if there were any.
  bool pump(tcp::SendQueue& queue) noexcept;

  enum class Answer : std::uint8_t {
    Completed,
    TooLong,  ///< for the room that the server offers: the call was completed with SYSTEM_ERR
    Unknown,  ///< no call of the server has this XID
  };
  bool empty() const noexcept;
  /// A reply record from the client, at least an RPC reply header long.
  Answer on_reply(std::span<const std::byte> record) noexcept;

  /// The connection that the calls came on has ended: they are completed, and the replies go nowhere. Returns
  /// how many.
  std::uint32_t drop_all() noexcept;

 private:
  struct Outstanding {
    service::Call* call = nullptr;
    std::uint32_t xid = 0;
    std::uint64_t sequence = 0;
    bool queued = false;
  };
  Outstanding* next_to_queue() noexcept;

  std::uint64_t sequence_ = 0;
  std::array<Outstanding, rdma_server::kMaxServerCalls> outstanding_;
};

}  // namespace sluice::tcp_clients
