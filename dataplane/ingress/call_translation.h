// SPDX-License-Identifier: Apache-2.0
//
// Between an RPC call as TCP carries it and the same call over RPC-over-RDMA: what is reduced (RFC 8166,
// section 3.4; RFC 8267), where the reply's data goes, and the reply put together again. The reactor of the
// client; no allocation.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "dataplane/ingress/client_call.h"
#include "dataplane/rpc/message.h"
#include "dataplane/rpcrdma/requester/requester.h"

namespace sluice::ingress {

/// The eligible arguments of a call, and the call without them.
struct ReducedCall {
  std::array<rdma::Sge, rpcrdma::kMaxReadItems> pieces;
  std::array<rpcrdma::ReadItem, rpcrdma::kMaxReadItems> items;
  std::size_t count = 0;
  std::span<const std::byte> payload;  ///< in the scratch memory
};

/// Write items of a call: the rooms that plan_reply() has chosen.
struct OfferedRooms {
  std::array<rdma::Sge, kMaxPlacedItems> pieces;
  std::array<rpcrdma::WriteItem, kMaxPlacedItems> items;
};

/// Names each eligible argument where it stands in `record`, whose memory is registered as `lkey`, and copies
/// the rest to `scratch`, which has room for the record. The call's binding has argument_items.
void reduce_call(const ClientCall& call, std::span<std::byte> record, std::size_t arguments_at,
                 rdma::Lkey lkey, std::span<std::byte> scratch, ReducedCall& reduced) noexcept;

/// Sets the call's rooms for the data that it asks for. Returns the most bytes that its reply can have
/// without that data.
std::uint32_t plan_reply(ClientCall& call, const rpc::CallHeader& header,
                         std::span<const std::byte> arguments) noexcept;

/// The call's rooms as Write items, in `call.reply`, whose memory is registered as `lkey`.
std::span<const rpcrdma::WriteItem> offer_rooms(const ClientCall& call, rdma::Lkey lkey,
                                                OfferedRooms& offered) noexcept;

/// Copies the reply message to `to`, and sets the call's pieces to the reply as TCP carries it, behind its
/// XID. False, with nothing set: message and placed data contradict each other, or `to` is too small.
bool assemble_reply(ClientCall& call, const rpcrdma::Reply& reply, std::span<std::byte> to) noexcept;

}  // namespace sluice::ingress
