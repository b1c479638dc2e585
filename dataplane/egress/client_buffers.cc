// SPDX-License-Identifier: Apache-2.0
#include "dataplane/egress/client_buffers.h"

#include <cstring>

namespace sluice::egress {

std::span<std::byte> ClientBuffers::keep_message(ClientCall& call, const rpcrdma::Reply& reply) noexcept {
  const std::span<const std::byte> message = reply.message();
  if (message.size() > kSmallReplyBytes && call.server->keep_reply(call, reply))
    return {call.kept_reply, message.size()};
  if (message.size() > kSmallReplyBytes && call.reply.address == nullptr)
    call.reply = acquire(message.size());
  std::span<std::byte> to = *call.small;
  if (call.reply.address != nullptr)
    to = {call.reply.address + call.all_chunks_bytes,
          ServerSide::bytes_of(call.reply) - call.all_chunks_bytes};
  if (message.size() > to.size()) return {};
  std::memcpy(to.data(), message.data(), message.size());
  return to.first(message.size());
}

}  // namespace sluice::egress
