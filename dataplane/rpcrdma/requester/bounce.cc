// SPDX-License-Identifier: Apache-2.0
//
// Arguments and results of callers whose memory is not registered go through buffers that are.
#include <cstring>

#include "dataplane/base/siphash.h"
#include "dataplane/base/small_algorithms.h"
#include "dataplane/rpcrdma/requester/requester.h"

namespace sluice::rpcrdma {

bool Requester::result_needs_bounce(std::span<const rdma::Sge> pieces) const noexcept {
  if (config_.single_segment_chunks && pieces.size() > 1) return true;
  return config_.round_up_write_chunks && rdma::total_bytes(pieces) % xdr::kUnit != 0;
}

bool Requester::any_bounces(const Request& request) const noexcept {
  for (const ReadItem& item : request.reads)
    if (config_.single_segment_chunks && item.pieces.size() > 1) return true;
  for (const WriteItem& item : request.writes)
    if (result_needs_bounce(item.pieces)) return true;
  return false;
}

std::byte* Requester::bounce_room(Slot& slot, std::uint64_t bytes) noexcept {
  if (slot.bounce_memory == nullptr || bytes > config_.bounce_buffer_bytes - slot.bounce_used) return nullptr;
  std::byte* room = slot.bounce_memory + slot.bounce_used;
  slot.bounce_used += static_cast<std::uint32_t>(xdr::padded(bytes));
  return room;
}

bool Requester::bounce_argument(Slot& slot, std::span<const rdma::Sge> pieces) noexcept {
  const std::uint64_t bytes = rdma::total_bytes(pieces);
  std::byte* to = bounce_room(slot, bytes);
  if (to == nullptr) return false;
  const rdma::Sge whole{to, static_cast<std::uint32_t>(bytes), bounce_memory_.lkey()};
  for (const rdma::Sge& piece : pieces) {
    std::memcpy(to, piece.address, piece.length);
    to += piece.length;
  }
  return copy_pieces(slot, {&whole, 1});
}

bool Requester::bounce_result(Slot& slot, std::uint32_t item, std::span<const rdma::Sge> pieces) noexcept {
  const std::uint64_t bytes = rdma::total_bytes(pieces);
  const std::uint64_t offered = config_.round_up_write_chunks ? xdr::padded(bytes) : bytes;
  std::byte* from = bounce_room(slot, offered);
  if (from == nullptr || slot.callers_piece_count + pieces.size() > kMaxRequestPieces) return false;
  slot.chunks->bounced[item] = {from, slot.callers_piece_count, static_cast<std::uint8_t>(pieces.size())};
  for (const rdma::Sge& piece : pieces) slot.chunks->callers_pieces[slot.callers_piece_count++] = piece;
  const rdma::Sge whole{from, static_cast<std::uint32_t>(offered), bounce_memory_.lkey()};
  return copy_pieces(slot, {&whole, 1});
}

/// Copies what was placed to where the caller wants it; the room for round-up stays behind.
void Requester::return_bounced(Slot& slot) noexcept {
  for (std::uint32_t i = 0; i < slot.write_items; ++i) {
    const BouncedResult& bounced = slot.chunks->bounced[i];
    if (bounced.from == nullptr) continue;
    const std::byte* from = bounced.from;
    std::uint64_t left = slot.chunks->returned[i];
    for (std::uint32_t p = 0; p < bounced.pieces && left > 0; ++p) {
      const rdma::Sge& to = slot.chunks->callers_pieces[bounced.first_piece + p];
      const auto bytes = static_cast<std::uint32_t>(smaller_of<std::uint64_t>(left, to.length));
      std::memcpy(to.address, from, bytes);
      from += bytes;
      left -= bytes;
    }
  }
}

std::uint64_t Requester::sum_arguments(const Slot& slot) const noexcept {
  static constexpr HashKey kKey{};
  std::uint64_t sum = 0;
  std::uint32_t pieces = 0;
  for (std::uint32_t i = 0; i < slot.read_items; ++i) pieces += slot.chunks->read_pieces[i];
  for (std::uint32_t i = 0; i < pieces; ++i)
    sum = sum * 31 + siphash(kKey, {slot.chunks->pieces[i].address, slot.chunks->pieces[i].length});
  return sum;
}

}  // namespace sluice::rpcrdma
