// SPDX-License-Identifier: Apache-2.0
//
// Reverse-direction calls of the server to one TCP client (RFC 8167): forwarded unchanged, and completed with
// the client's reply. Only the reactor of the client may call; no allocation. Calls belong to the transport.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "dataplane/service/api/service.h"
#include "dataplane/tcp/send_queue.h"

namespace sluice::ingress {

/// Outstanding calls of the server per client.
inline constexpr std::size_t kMaxServerCalls = 16;
/// Longest wait for a client's reply.
inline constexpr std::uint64_t kServerCallTimeoutNs = 30'000'000'000;

class ServerCalls {
 public:
  /// Queues the call to the client. False, with no effect: too many are outstanding, the call is too long, or
  /// the queue is full.
  bool start(service::Call& call, tcp::SendQueue& queue, std::uint64_t now_ns) noexcept;

  enum class Answer : std::uint8_t {
    Completed,
    Refused,  ///< no memory for the reply: the call was completed with SYSTEM_ERR
    Unknown,  ///< no call of the server has this XID
  };
  /// A reply record from the client, at least an RPC reply header long.
  Answer on_reply(std::span<const std::byte> record) noexcept;

  /// Completes overdue calls, or all, with SYSTEM_ERR; returns how many.
  std::uint32_t expire(std::uint64_t now_ns) noexcept;
  std::uint32_t refuse_all() noexcept;

 private:
  struct Outstanding {
    service::Call* call = nullptr;
    std::uint32_t xid = 0;
    std::uint64_t begun_ns = 0;
  };
  static void refuse(Outstanding& outstanding) noexcept;

  std::array<Outstanding, kMaxServerCalls> outstanding_;
};

}  // namespace sluice::ingress
