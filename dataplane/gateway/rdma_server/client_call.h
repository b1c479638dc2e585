// SPDX-License-Identifier: Apache-2.0
//
// One client's call to an RPC-over-RDMA server. Accessible only on the client's reactor.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "dataplane/base/intrusive_lists.h"
#include "dataplane/gateway/call_state.h"
#include "dataplane/service/api/binding.h"
#include "dataplane/service/api/service.h"
#include "dataplane/tcp/record_stream.h"

namespace sluice::rdma_server {

class ServerConnection;

/// Maximum size in bytes of a reply that fits the call's own buffer.
inline constexpr std::uint32_t kSmallReplyBytes = 4096;
/// Maximum number of eligible results placed per reply. Further results return inline.
inline constexpr std::size_t kMaxPlacedItems = service::kMaxResultItems;

/// A buffer of the shared pools, held until ServerSide::release_buffer().
struct PoolBuffer {
  std::byte* address = nullptr;
  bool is_record = false;  ///< true: large enough for the longest message; false: for short replies
};

struct ClientCall {
  enum class State : std::uint8_t {
    Free,
    Outstanding,  ///< submitted to the requester; the reply is pending
    Ready,        ///< the reply waits for room in the client's send queue
    Sending,      ///< the send queue refers to its memory
  };
  State state = State::Free;  ///< changed only by transition()
  bool submitting = false;    ///< inside submit(): a completion now means that the requester refused the call
  bool refused = false;       ///< the call completed inside submit()
  ServerConnection* server = nullptr;  ///< the connection that owns this call
  std::uint32_t index = 0;
  std::uint32_t xid = 0;
  std::uint32_t program = 0;
  std::uint32_t version = 0;
  std::uint32_t procedure = 0;
  bool announces_sizes = false;  ///< the reply may announce sizes, and is not encrypted
  bool tells_withheld = false;   ///< the reply may announce withheld features, and is not encrypted
  std::uint64_t begun_ns = 0;
  bool repeated = false;         ///< the client has retransmitted the call
  std::uint64_t first_dial = 0;  ///< ordinal of the connection over which the call was sent first
  gateway::RetransmissionTimer retransmission;
  const service::Binding* binding = nullptr;  ///< static

  PoolBuffer arguments;                ///< memory that the server reads by RDMA
  PoolBuffer reply;                    ///< buffers of the Write chunks, followed by the reply message
  std::byte* kept_reply = nullptr;     ///< the requester's Reply chunk that holds the reply message
  std::uint32_t all_chunks_bytes = 0;  ///< total of the Write chunks
  std::uint32_t chunk_count = 0;       ///< number of eligible results, including results without a chunk
  std::array<std::uint32_t, kMaxPlacedItems> chunk_at;     ///< offset in `reply`
  std::array<std::uint32_t, kMaxPlacedItems> chunk_bytes;  ///< size of each Write chunk; zero: the result
                                                           ///< returns inline

  bool names_items = false;  ///< the client offered chunks for results: look for eligible results in any
                             ///< reply
  std::uint32_t item_count = 0;
  std::array<service::Item, kMaxPlacedItems> items;  ///< eligible results, with offsets in the reply message

  service::Call* served = nullptr;  ///< the RDMA client's call that this call carries to the server

  // The members below are used for TCP clients only.
  std::uint32_t total_bytes = 0;  ///< size of the reply as sent to the client
  std::uint32_t piece_count = 0;
  std::uint32_t pieces_left = 0;                                           ///< not sent yet, while Sending
  std::array<std::span<const std::byte>, 2 * kMaxPlacedItems + 1> pieces;  ///< the reply without its XID
  QueueLink<ClientCall> link;                                              ///< used by one queue at a time
  std::array<std::byte, kSmallReplyBytes>* small = nullptr;

  void transition(State to) noexcept;
};

using ClientCallTransitions = TransitionTable<ClientCall::State, ClientCall::State::Sending>;
/// Successors of each state of a client's call at a server. A call of an RDMA client is never Ready or
/// Sending.
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
