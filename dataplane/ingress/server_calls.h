// SPDX-License-Identifier: Apache-2.0
//
// Calls of the server to one TCP client, in the reverse direction (RFC 8167): passed on as they are, and
// answered with what the client answers. The reactor of the client; no allocation.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "dataplane/service/api/service.h"
#include "dataplane/tcp/send_queue.h"

namespace sluice::ingress {

/// Calls of the server that one client may have at a time.
inline constexpr std::size_t kMaxServerCalls = 16;
/// Longest wait for a client's answer to one.
inline constexpr std::uint64_t kServerCallTimeoutNs = 30'000'000'000;

class ServerCalls {
 public:
  /// Puts the call into the client's send queue. False, with nothing done: too many are outstanding, it is
  /// too long, or the queue has no room.
  bool start(service::Call& call, tcp::SendQueue& queue, std::uint64_t now_ns) noexcept;

  enum class Answer : std::uint8_t {
    Completed,
    Refused,  ///< there is no room for it: the call ended with SYSTEM_ERR
    Unknown,  ///< no call of the server has this XID
  };
  /// A reply of the client's: a record with an XID and more.
  Answer on_reply(std::span<const std::byte> record) noexcept;

  /// Ends those that wait for too long, or all, with SYSTEM_ERR; returns how many.
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
