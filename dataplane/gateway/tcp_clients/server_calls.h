// SPDX-License-Identifier: Apache-2.0
//
// Forwards the reverse-direction calls of the server (RFC 8167) unchanged to one TCP client, and completes
// them with the client's replies. A call has no timeout here, because the server applies its own. It waits
// until the client replies or one of the two connections ends. Only the client's reactor may call. Never
// allocates. The transport owns the calls.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "dataplane/gateway/rdma_server/server_user.h"
#include "dataplane/service/api/service.h"
#include "dataplane/tcp/send_queue.h"

namespace sluice::tcp_clients {

/// Maximum bytes of a call of the server. Callbacks have a few hundred bytes.
inline constexpr std::size_t kMaxServerCallBytes = tcp::kSendRingBytes / 2;

class ServerCalls {
 public:
  /// Accepts the call, and queues it to the client when the send queue has room. Returns false without effect
  /// if the call is longer than kMaxServerCallBytes, or if the server exceeds its granted number of
  /// outstanding calls.
  bool start(service::Call& call, tcp::SendQueue& queue) noexcept;
  /// Queues the calls that wait for room. Returns true if any call was queued.
  bool pump(tcp::SendQueue& queue) noexcept;

  enum class Answer : std::uint8_t {
    Completed,
    TooLong,  ///< the reply exceeds the server's room; the call was completed with SYSTEM_ERR
    Unknown,  ///< no outstanding call has this XID
  };
  bool empty() const noexcept;
  /// Completes the call that the client's reply record answers. The record is at least as long as an RPC
  /// reply header.
  Answer on_reply(std::span<const std::byte> record) noexcept;

  /// Completes all calls with SYSTEM_ERR, because one of the two connections has ended. Returns the number of
  /// calls.
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
