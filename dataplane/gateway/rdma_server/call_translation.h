// SPDX-License-Identifier: Apache-2.0
//
// Translation between a whole RPC call and one over RPC-over-RDMA: reduces the call (RFC 8166, section 3.4;
// RFC 8267), chooses where the server places the reply's data, and reassembles the reply. Only the reactor of
// the client may call; no allocation.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "dataplane/gateway/rdma_server/client_call.h"
#include "dataplane/gateway/rdma_server/server_side.h"
#include "dataplane/rpc/message.h"
#include "dataplane/rpcrdma/requester/requester.h"

namespace sluice::rdma_server {

/// The eligible arguments of a call, and the call reduced by them.
struct ReducedCall {
  std::array<rdma::Sge, rpcrdma::kMaxReadItems> pieces;
  std::array<rpcrdma::ReadItem, rpcrdma::kMaxReadItems> items;
  std::size_t count = 0;
  std::span<const std::byte> payload;  ///< in the scratch memory
};

/// Write items of a call, one for each Write chunk that plan_reply() has chosen.
struct OfferedChunks {
  std::array<rdma::Sge, kMaxPlacedItems> pieces;
  std::array<rpcrdma::WriteItem, kMaxPlacedItems> items;
};

/// Makes each eligible argument a Read item in place in `record`, whose memory is registered as `lkey`, and
/// copies the rest to `scratch`, which has room for the record. The call's binding has argument_items.
void reduce_call(const ClientCall& call, std::span<std::byte> record, std::size_t arguments_at,
                 rdma::Lkey lkey, std::span<std::byte> scratch, ReducedCall& reduced) noexcept;

/// Sets the call's Write chunks, for the eligible results that it requests. Returns an upper bound in bytes
/// for the rest of the reply. Of calls with integrity the results are bounded as others', but none is eligible;
/// those with privacy can have any reply.
std::uint32_t plan_reply(ClientCall& call, const rpc::CallHeader& header,
                         std::span<const std::byte> arguments) noexcept;

/// The call's Write chunks as Write items, in `call.reply`, whose memory is registered as `lkey`.
std::span<const rpcrdma::WriteItem> offer_chunks(const ClientCall& call, rdma::Lkey lkey,
                                                 OfferedChunks& offered) noexcept;

/// Sets the call's items to the eligible results of the reply, if any were placed, or if names_items says so.
/// `message`: that of the reply, where it stays until it is sent; sizes that it announces are lowered there, and
/// what is withheld is taken out; `side` remembers both. False, with nothing set: message and placed data are inconsistent.
bool read_reply(ClientCall& call, const rpcrdma::Reply& reply, std::span<std::byte> message,
                ServerSide& side) noexcept;

/// Sets the call's pieces to the reply as sent over TCP, without its XID. After read_reply().
void assemble_reply(ClientCall& call, std::span<const std::byte> message) noexcept;

}  // namespace sluice::rdma_server
