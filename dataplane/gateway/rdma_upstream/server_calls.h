// SPDX-License-Identifier: Apache-2.0
//
// Calls that the server makes to one client (RFC 8167). They are forwarded unchanged and completed with the
// client's reply. Callable only on the owning reactor. Never allocates. The transport owns the calls.
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
  /// Forwards a call. Returns false, without effect, if the client cannot take calls or has too many
  /// outstanding.
  bool start(service::Call& call, service::Client& client) noexcept;
  /// Completes all calls because the connection that they arrived on has ended. Later replies are discarded.
  void drop_all() noexcept;

 private:
  struct Outstanding {
    service::Call* call = nullptr;  ///< null after drop_all()
    bool in_use = false;            ///< true until the client's reply arrives or fails
  };
  static void on_reply(void* context, std::span<const std::byte> reply) noexcept;

  std::array<Outstanding, rdma_server::kMaxServerCalls> outstanding_;
};

}  // namespace sluice::rdma_upstream
