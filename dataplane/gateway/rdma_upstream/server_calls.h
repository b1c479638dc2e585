// SPDX-License-Identifier: Apache-2.0
//
// The server's own calls to one client (RFC 8167): passed on unchanged, and completed with the client's reply. Only
// the owning reactor may call; no allocation. The calls belong to the transport.
#pragma once

#include <array>
#include <cstddef>
#include <span>

#include "dataplane/gateway/rdma_server/server_user.h"
#include "dataplane/service/api/service.h"

namespace sluice::rdma_upstream {

class ServerCalls {
 public:
  ServerCalls() = default;
  ServerCalls(const ServerCalls&) = delete;
  ServerCalls& operator=(const ServerCalls&) = delete;

  bool empty() const noexcept;
  /// False, with no effect: the client cannot take it, or has too many.
  bool start(service::Call& call, service::Client& client) noexcept;
  /// The connection that the calls came on has ended: they are completed, and the replies go nowhere.
  void drop_all() noexcept;

 private:
  struct Outstanding {
    service::Call* call = nullptr;  ///< null: dropped
    bool in_use = false;            ///< until the client's reply, or the news that there is none
  };
  static void on_reply(void* context, std::span<const std::byte> reply) noexcept;

  std::array<Outstanding, rdma_server::kMaxServerCalls> outstanding_;
};

}  // namespace sluice::rdma_upstream
