// SPDX-License-Identifier: Apache-2.0
//
// Translation between a whole RPC call and one over RPC-over-RDMA: reduces the call (RFC 8166, section 3.4;
// RFC 8267), chooses where the server places the reply's data, and reassembles the reply. Only the reactor of
// the client may call; no allocation.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "dataplane/gateway/rdma_server/client_buffers.h"
#include "dataplane/gateway/rdma_server/client_call.h"
#include "dataplane/gateway/rdma_server/server_side.h"
#include "dataplane/rpc/message.h"
#include "dataplane/rpcrdma/requester/requester.h"

namespace sluice::rdma_server {

/// The binding of calls whose items only the server can decode (V1-175), and of programs without eligible items.
inline constexpr service::Binding kNoBinding{};

/// Sets program, version, procedure and binding of a call. `binding` is that of the program; null: it has none.
inline void identify(ClientCall& call, const rpc::CallHeader& header,
                     const service::Binding* binding) noexcept {
  call.program = header.program;
  call.version = header.version;
  call.procedure = header.procedure;
  call.binding = binding == nullptr || rpc::is_wrapped(header.credential) ? &kNoBinding : binding;
}

/// A client's call that is to be submitted.
struct OutgoingCall {
  const rpc::CallHeader& header;
  std::span<std::byte> message;
  std::size_t arguments_at = 0;  ///< offset in `message`
  std::optional<rdma::Lkey>
      lkey{};  ///< of `message`, which stays until the reply; none: a reduced call is copied
  std::uint64_t reply_room = tcp::kMaxRecordBytes;  ///< bytes of the longest reply that the client can take
};

enum class Submission : std::uint8_t {
  NoMemory,   ///< for now: the caller frees the call, and tries again later
  Submitted,  ///< inline
  Reduced,    ///< the server reads arguments where `message`, or its copy, is
  Refused,    ///< the connection cannot carry the call
};

/// Submits an identified call to its connection: takes memory for what the server reads and writes, offers it as
/// chunks, and withholds what is not asked for. Replies of a call with integrity are bounded as others' are, but no
/// result is eligible; those with privacy can have any reply.
Submission submit_call(ClientCall& call, const OutgoingCall& outgoing, ServerSide& side,
                       ClientBuffers& buffers) noexcept;

/// Sets the call's items to the eligible results of the reply, if any were placed, or if names_items says so.
/// `message`: that of the reply, where it stays until it is sent; sizes that it announces are lowered there, and
/// what is withheld is taken out; `side` remembers both. False, with nothing set: message and placed data are inconsistent.
bool read_reply(ClientCall& call, const rpcrdma::Reply& reply, std::span<std::byte> message,
                ServerSide& side) noexcept;

/// Sets the call's pieces to the reply as sent over TCP, without its XID. After read_reply().
void assemble_reply(ClientCall& call, std::span<const std::byte> message) noexcept;

}  // namespace sluice::rdma_server
