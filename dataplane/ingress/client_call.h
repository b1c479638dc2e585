// SPDX-License-Identifier: Apache-2.0
//
// One call of a TCP client on its way to the server and back. One reactor.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "dataplane/service/api/binding.h"
#include "dataplane/service/api/service.h"
#include "dataplane/tcp/record_stream.h"

namespace sluice::ingress {

class TcpClient;

/// Replies up to this size need no memory but the call's own.
inline constexpr std::uint32_t kSmallReplyBytes = 4096;
/// Data that may be placed in one reply; what is more comes inline.
inline constexpr std::size_t kMaxPlacedItems = service::kMaxResultItems;

/// Registered memory of one of two sizes, which the clients share.
struct Loan {
  std::byte* address = nullptr;
  bool is_record = false;  ///< of Memory::records, else of Memory::items
};

struct ClientCall {
  enum class State : std::uint8_t {
    Free,
    Outstanding,  ///< the requester has it
    Ready,        ///< its reply waits for room in the send queue
    Sending,      ///< the send queue names its memory
  };
  State state = State::Free;
  bool submitting = false;  ///< its completion would come from within submit()
  bool refused = false;     ///< it has come so
  TcpClient* client = nullptr;
  std::uint32_t index = 0;
  std::uint32_t xid = 0;
  std::uint32_t procedure = 0;
  std::uint64_t begun_ns = 0;
  const service::Binding* binding = nullptr;  ///< static

  Loan call;                      ///< data that the server reads
  Loan reply;                     ///< rooms for placed data, and behind them the reply itself
  std::uint32_t rooms_bytes = 0;  ///< of all of them
  std::uint32_t room_count = 0;   ///< eligible results, those included that have no room
  std::array<std::uint32_t, kMaxPlacedItems> room_at;
  std::array<std::uint32_t, kMaxPlacedItems> room_bytes;  ///< zero: the data is to come inline

  std::uint32_t total_bytes = 0;  ///< of the reply as the client gets it
  std::uint32_t piece_count = 0;
  std::uint32_t pieces_left = 0;                                           ///< Sending
  std::array<std::span<const std::byte>, 2 * kMaxPlacedItems + 1> pieces;  ///< of the reply, behind its XID
  ClientCall* next = nullptr;
  std::array<std::byte, kSmallReplyBytes>* small = nullptr;
};

}  // namespace sluice::ingress
