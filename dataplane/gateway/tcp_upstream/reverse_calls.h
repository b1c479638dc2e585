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

class UpstreamConnection;
class UpstreamShared;

/// Reverse-direction calls of one upstream that are outstanding at clients.
inline constexpr std::uint32_t kMaxReverseCalls = 256;

class ReverseCalls {
 public:
  /// Setup. `shared` outlives it.
  explicit ReverseCalls(UpstreamShared& shared);
  ReverseCalls(const ReverseCalls&) = delete;
  ReverseCalls& operator=(const ReverseCalls&) = delete;

  /// `record` is valid during the call only. It is answered now or later, on the same connection.
  void on_call(UpstreamConnection& connection, std::span<const std::byte> record) noexcept;
  void refuse(UpstreamConnection& connection, std::uint32_t xid, rpc::AcceptStat stat) noexcept;

 private:
  struct Outstanding {
    ReverseCalls* calls = nullptr;
    UpstreamConnection* connection = nullptr;  ///< null: the call is free
    std::uint32_t epoch = 0;                   ///< of the connection
    std::uint32_t xid = 0;
  };
  void give_back(Outstanding& call) noexcept;
  static void on_reply(void* context, std::span<const std::byte> reply) noexcept;

  UpstreamShared& shared_;
  std::array<Outstanding, kMaxReverseCalls> calls_;
  std::vector<Outstanding*> free_;
};

}  // namespace sluice::tcp_upstream
