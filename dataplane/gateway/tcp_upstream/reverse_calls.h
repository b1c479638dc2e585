// SPDX-License-Identifier: Apache-2.0
//
// Calls in the reverse direction (RFC 8167): those of an upstream, passed to the client that owns the
// connection they came on. Only the owning reactor may call; only the constructor allocates.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "dataplane/rpc/message.h"

namespace sluice::tcp_upstream {

class Upstream;
class UpstreamConnection;

/// Reverse-direction calls of one upstream that are outstanding at clients.
inline constexpr std::uint32_t kMaxReverseCalls = 256;

class ReverseCalls {
 public:
  /// Setup. The upstream outlives it.
  explicit ReverseCalls(Upstream& upstream);
  ReverseCalls(const ReverseCalls&) = delete;
  ReverseCalls& operator=(const ReverseCalls&) = delete;

  /// `record` is valid during the call only. It is answered now or later, on the same connection.
  void on_call(UpstreamConnection& connection, std::span<const std::byte> record) noexcept;
  void refuse(UpstreamConnection& connection, std::uint32_t xid, rpc::AcceptStat stat) noexcept;

 private:
  struct Outstanding {
    ReverseCalls* calls = nullptr;
    UpstreamConnection* connection = nullptr;
    std::uint32_t epoch = 0;  ///< of the connection
    std::uint32_t xid = 0;
  };
  static void on_reply(void* context, std::span<const std::byte> reply) noexcept;

  Upstream& upstream_;
  std::array<Outstanding, kMaxReverseCalls> calls_;
  std::vector<Outstanding*> free_;
};

}  // namespace sluice::tcp_upstream
