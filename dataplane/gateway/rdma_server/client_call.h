// SPDX-License-Identifier: Apache-2.0
//
// One call of a client, on its way to an RPC-over-RDMA server and back. Only the reactor of the client may access it.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "dataplane/base/intrusive_queue.h"
#include "dataplane/gateway/retransmission.h"
#include "dataplane/gateway/transition_table.h"
#include "dataplane/service/api/binding.h"
#include "dataplane/service/api/service.h"
#include "dataplane/tcp/record_stream.h"

namespace sluice::rdma_server {

class ServerConnection;

/// Replies up to this size fit the call's own buffer.
inline constexpr std::uint32_t kSmallReplyBytes = 4096;
/// Eligible results placed per reply; further ones come inline.
inline constexpr std::size_t kMaxPlacedItems = service::kMaxResultItems;

/// A buffer of the pools that the clients share, until ServerSide::release_buffer().
struct PoolBuffer {
  std::byte* address = nullptr;
  bool is_record = false;  ///< as long as the longest message; else as short replies
};

struct ClientCall {
  enum class State : std::uint8_t {
    Free,
    Outstanding,  ///< submitted to the requester; waits for its reply
    Ready,        ///< its reply waits for room in the send queue
    Sending,      ///< the send queue refers to its memory
  };
  State state = State::Free;  ///< changed by transition() alone
  bool submitting = false;    ///< in submit(): a completion now means that the requester refused the call
  bool refused = false;       ///< completed within submit()
  ServerConnection* server = nullptr;  ///< that it belongs to
  std::uint32_t index = 0;
  std::uint32_t xid = 0;
  std::uint32_t program = 0;
  std::uint32_t version = 0;
  std::uint32_t procedure = 0;
  bool announces_sizes = false;  ///< its reply may, in the clear
  bool tells_withheld = false;   ///< the same
  std::uint64_t begun_ns = 0;
  bool repeated = false;         ///< its client has retransmitted it
  std::uint64_t first_dial = 0;  ///< number of the connection over which it was sent first
  gateway::RetransmissionTimer retransmission;
  const service::Binding* binding = nullptr;  ///< static

  PoolBuffer arguments;                ///< what the server reads by RDMA
  PoolBuffer reply;                    ///< buffers of the Write chunks, then the reply message
  std::byte* kept_reply = nullptr;     ///< the requester's Reply chunk, with the reply message
  std::uint32_t all_chunks_bytes = 0;  ///< total of the Write chunks
  std::uint32_t chunk_count = 0;       ///< eligible results, including those without a chunk
  std::array<std::uint32_t, kMaxPlacedItems> chunk_at;     ///< offset in `reply`
  std::array<std::uint32_t, kMaxPlacedItems> chunk_bytes;  ///< zero: the result is to come inline

  bool names_items = false;  ///< its client wants eligible results apart: they are looked for in any reply
  std::uint32_t item_count = 0;
  std::array<service::Item, kMaxPlacedItems> items;  ///< eligible results, with offsets in the reply message

  service::Call* served = nullptr;  ///< of a client over RDMA: the call that this one stands for

  // Of a TCP client.
  std::uint32_t total_bytes = 0;  ///< of the reply as sent to the client
  std::uint32_t piece_count = 0;
  std::uint32_t pieces_left = 0;                                           ///< Sending: not yet sent
  std::array<std::span<const std::byte>, 2 * kMaxPlacedItems + 1> pieces;  ///< of the reply, without its XID
  QueueLink<ClientCall> link;                                              ///< of the one queue it is in
  std::array<std::byte, kSmallReplyBytes>* small = nullptr;

  void transition(State to) noexcept;
};

using ClientCallTransitions = gateway::TransitionTable<ClientCall::State, ClientCall::State::Sending>;
/// Successors of each state of a client's call at a server. A call of an RDMA client is never Ready or Sending.
inline constexpr ClientCallTransitions kClientCallTransitions = [] {
  using enum ClientCall::State;
  return ClientCallTransitions{
      {Outstanding},    // Free
      {Free, Ready},    // Outstanding
      {Free, Sending},  // Ready
      {Free},           // Sending
  };
}();

inline void ClientCall::transition(State to) noexcept {
  gateway::change_state(kClientCallTransitions, state, to);
}

}  // namespace sluice::rdma_server
