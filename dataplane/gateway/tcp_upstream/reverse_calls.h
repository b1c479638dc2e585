// SPDX-License-Identifier: Apache-2.0
//
// Forwards the reverse-direction calls of an upstream (RFC 8167) to the client to which the receiving
// connection is dedicated. Only the owning reactor may call; only the constructor allocates.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "dataplane/rpc/message.h"

namespace sluice::tcp_upstream {

class UpstreamConnection;
class UpstreamShared;

/// Maximum number of reverse-direction calls of one upstream that are outstanding at clients.
inline constexpr std::uint32_t kMaxReverseCalls = 256;

class ReverseCalls {
 public:
  /// Setup. `shared` outlives this object.
  explicit ReverseCalls(UpstreamShared& shared);
  ReverseCalls(const ReverseCalls&) = delete;
  ReverseCalls& operator=(const ReverseCalls&) = delete;

  /// Passes a call of the upstream to the connection's client, or refuses it. `record` is only valid during
  /// this function. The reply is sent on the same connection, now or later.
  void on_call(UpstreamConnection& connection, std::span<const std::byte> record) noexcept;
  /// Replies to a call of the upstream with `stat`.
  void refuse(UpstreamConnection& connection, std::uint32_t xid, rpc::AcceptStat stat) noexcept;

 private:
  struct Outstanding {
    ReverseCalls* calls = nullptr;
    UpstreamConnection* connection = nullptr;  ///< null: the call is free
    std::uint32_t epoch = 0;                   ///< epoch of the connection when the call arrived
    std::uint32_t xid = 0;
  };
  void give_back(Outstanding& call) noexcept;
  static void on_reply(void* context, std::span<const std::byte> reply) noexcept;

  UpstreamShared& shared_;
  std::array<Outstanding, kMaxReverseCalls> calls_;
  std::vector<Outstanding*> free_;
};

}  // namespace sluice::tcp_upstream
