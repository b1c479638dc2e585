// SPDX-License-Identifier: Apache-2.0
//
// The end of a server's call to a client of a gateway (RFC 8167). Only the owning reactor may call.
#pragma once

#include <cstddef>
#include <span>

#include "dataplane/service/api/service.h"

namespace sluice::rdma_server {

/// Completes a server's call with the reply message of its client. Returns false if the reply is no message, or is longer
/// than the room that the server offers: the call is completed with SYSTEM_ERR.
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
