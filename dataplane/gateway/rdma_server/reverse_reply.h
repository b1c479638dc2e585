// SPDX-License-Identifier: Apache-2.0
//
// Completion of a call that a server makes to a client of a gateway (RFC 8167). Callable only on the owning
// reactor.
#pragma once

#include <cstddef>
#include <span>

#include "dataplane/service/api/service.h"

namespace sluice::rdma_server {

/// Completes a server's call with the client's reply message. Returns false and completes the call with
/// SYSTEM_ERR if the reply is not an RPC message or exceeds the room that the server offers.
inline bool complete_with_reply(service::Call& call, std::span<const std::byte> reply) noexcept {
  if (reply.size() < xdr::kUnit || !call.require_results(reply.size())) {
    call.complete(rpc::AcceptStat::SystemErr);
    return false;
  }
  call.write_whole_reply();
  call.results().opaque_fixed(reply.subspan(xdr::kUnit));
  call.complete(rpc::AcceptStat::Success);
  return true;
}

}  // namespace sluice::rdma_server
