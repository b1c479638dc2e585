// SPDX-License-Identifier: Apache-2.0
//
// Public functions of the requester, and its handling of connection changes.
#include "dataplane/rpcrdma/requester/steps.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "dataplane/base/cache_line.h"
#include "dataplane/base/invariant.h"
#include "dataplane/base/setup_error.h"
#include "dataplane/base/siphash.h"
#include "dataplane/base/small_algorithms.h"
#include "dataplane/rpcrdma/requester/request.h"
#include "pmd/device.h"

namespace sluice::rpcrdma {
using RequestState = RequestSlot::State;

Requester::Requester(RequesterContext context, rdma::Device& device, const RequesterConfig& config)
    : context_(*context.links_),
      config_(config),
      sends_(config.requests),
      xid_sequence_(random_value<std::uint32_t>()),
      send_stride_(static_cast<std::uint32_t>(buffer_stride(std::size_t{2} * config.inline_bytes))),
      send_region_(device.allocate_memory(std::size_t{send_stride_} * config.requests)),
      long_memory_(config.long_buffers == 0
                       ? rdma::BufferPool{}
                       : rdma::BufferPool(device.allocate_memory(std::size_t{config.long_buffers} *
                                                                 config.long_buffer_bytes),
                                          config.long_buffer_bytes)),
      short_replies_(config.short_reply_buffers == 0
                         ? rdma::BufferPool{}
                         : rdma::BufferPool(device.allocate_memory(std::size_t{config.short_reply_buffers} *
                                                                   config.short_reply_bytes),
                                            config.short_reply_bytes)),
      bounce_memory_(config.bounce_buffers == 0
                         ? rdma::BufferPool{}
                         : rdma::BufferPool(device.allocate_memory(std::size_t{config.bounce_buffers} *
                                                                   config.bounce_buffer_bytes),
                                            config.bounce_buffer_bytes)),
      by_regions_(device.limits().max_windows == 0 && device.limits().max_call_regions > 0),
      chunk_arrays_(config.requests),
      region_arrays_(by_regions_ ? config.requests : 0),
      slots_(config.requests),
      free_(config.requests) {
  if (!std::has_single_bit(config.requests) || config.requests > kMaxCredits)
    throw SetupError("The number of requests of a requester has to be a power of two of at most 1024.");
  if (!config.reverse || config.reverse_chunks)
    for (std::uint32_t i = 0; i < config.windows; ++i) windows_.push_back(device.allocate_window());
  free_windows_ = windows_.size();
  if (by_regions_ && config.pool_buffers > 0) {
    pool_region_ = device.allocate_memory(std::size_t{config.pool_buffers} * config.pool_buffer_bytes);
    pool_ = rdma::BufferPool(pool_region_, config.pool_buffer_bytes);
    pool_window_ = device.allocate_window();
  }
  by_sequence_.reserve(config.requests);
  if (config.keep_xids) xids_.resize(config.requests);
  for (std::uint32_t i = 0; i < config.requests; ++i) {
    slots_[i].index = static_cast<std::uint16_t>(i);
    slots_[i].reply.slot_ = static_cast<std::uint16_t>(i);
    slots_[i].chunks = &chunk_arrays_[i];
    if (by_regions_) slots_[i].regions = &region_arrays_[i];
  }
  for (std::uint32_t i = config.requests; i-- > 0;) free_.push(slots_[i].index);
}

Requester::~Requester() {
  static_cast<void>(SLUICE_INVARIANT(attached() || outstanding_ == 0, pool_balance));
}

bool Requester::balanced() const noexcept {
  return outstanding_ == 0 && quiescent() && free_.size() == config_.requests &&
         free_windows_ == windows_.size() && long_memory_.available() == config_.long_buffers &&
         short_replies_.available() == config_.short_reply_buffers &&
         bounce_memory_.available() == config_.bounce_buffers &&
         (pool_.buffer_bytes() == 0 || pool_.available() == config_.pool_buffers);
}

/// An illegal transition is still made because the code that follows relies on the new state.
void Requester::transition(Slot& slot, RequestState to) noexcept {
  const bool legal = SLUICE_INVARIANT(may_follow(slot.state, to), request_state) &&
                     SLUICE_INVARIANT(to != RequestState::AwaitingTurn || !slot.ends_as, request_state);
  slot.state = to;
  if (!legal && link_ != nullptr) link_->close(CloseReason::InternalError);
}

/// Returns the only slot that a call with this XID can be in.
RequestSlot& Requester::slot_of(rpc::Xid xid) noexcept {
  if (!config_.keep_xids) return slots_[static_cast<std::uint32_t>(xid) & (config_.requests - 1)];
  for (std::uint32_t i = 0; i < config_.requests; ++i)
    if (xids_[i] == xid && slots_[i].state != RequestState::Free &&
        slots_[i].state != RequestState::AwaitingSendDone)
      return slots_[i];
  return slots_[0];
}

RequestSlot* Requester::find(rpc::Xid xid) noexcept {
  Slot& slot = slot_of(xid);
  return slot.xid == xid && slot.state == RequestState::AwaitingReply ? &slot : nullptr;
}

bool Requester::is_outstanding(rpc::Xid xid) const noexcept {
  return const_cast<Requester*>(this)->find(xid) != nullptr;
}

// --- Functions called by the caller

bool Requester::copy_request(Slot& slot, const Request& request) noexcept {
  SLUICE_INVARIANT_DEBUG(slot.call_memory == nullptr && slot.bounce_memory == nullptr, pool_balance);
  SLUICE_INVARIANT_DEBUG(slot.piece_count == 0 && slot.read_items + slot.write_items == 0, request_state);
  slot.force_long = request.as_long_call;
  slot.force_reply_chunk = request.offer_reply_chunk;
  if (request.payload.size() < rpc::kMinCallBytes || request.reads.size() > kMaxReadItems ||
      request.writes.size() > kMaxWriteItems)
    return false;

  std::byte* payload = send_buffer(slot.index) + config_.inline_bytes;
  if (request.payload.size() > config_.inline_bytes) {
    if (request.payload.size() > long_memory_.buffer_bytes()) return false;
    payload = slot.call_memory = long_memory_.acquire();
    if (!SLUICE_INVARIANT(payload != nullptr, pool_balance)) return false;
  }
  std::memcpy(payload, request.payload.data(), request.payload.size());
  xdr::store_u32(payload, static_cast<std::uint32_t>(slot.xid));
  slot.payload_bytes = static_cast<std::uint32_t>(request.payload.size());

  if (needs_bounce(request)) slot.bounce_memory = bounce_memory_.acquire();
  SLUICE_INVARIANT_DEBUG(!needs_bounce(request) || slot.bounce_memory != nullptr, pool_balance);
  for (const ReadItem& item : request.reads) {
    slot.chunks->read_positions[slot.read_items] = item.position;
    const std::uint8_t before = slot.piece_count;
    const bool bounced = config_.single_segment_chunks && item.pieces.size() > 1;
    if (!(bounced ? bounce_argument(slot, item.pieces) : copy_pieces(slot, item.pieces))) return false;
    slot.chunks->read_pieces[slot.read_items++] = static_cast<std::uint8_t>(slot.piece_count - before);
  }
  for (const WriteItem& item : request.writes) {
    const std::uint8_t before = slot.piece_count;
    const std::uint64_t room = rdma::total_bytes(item.pieces);
    slot.chunks->write_offers[slot.write_items] = static_cast<std::uint32_t>(
        item.first_offer_bytes > 0 ? smaller_of<std::uint64_t>(item.first_offer_bytes, room) : room);
    slot.chunks->bounced[slot.write_items] = {};
    const bool bounced = result_needs_bounce(item.pieces);
    if (!(bounced ? bounce_result(slot, slot.write_items, item.pieces) : copy_pieces(slot, item.pieces)))
      return false;
    slot.chunks->write_pieces[slot.write_items++] = static_cast<std::uint8_t>(slot.piece_count - before);
  }
  return true;
}

bool Requester::copy_pieces(Slot& slot, std::span<const rdma::Sge> pieces) noexcept {
  if (slot.piece_count + pieces.size() > kMaxRequestPieces) return false;
  for (const rdma::Sge& piece : pieces) slot.chunks->pieces[slot.piece_count++] = piece;
  return true;
}

bool Requester::cancel(rpc::Xid xid) noexcept {
  Slot& slot = slot_of(xid);
  return slot.xid == xid && give_up(slot, CallStatus::Cancelled);
}

void Requester::cancel_all() noexcept {
  for (std::uint32_t i = 0; i < config_.requests; ++i) give_up(slots_[i], CallStatus::Cancelled);
}

bool Requester::call_back(std::span<const std::byte> call, service::Client::CallBackDone done,
                          void* context) noexcept {
  if (free_.empty() || call.size() > config_.inline_bytes) return false;
  Slot* const slot = &slots_[free_.top()];  // submit() will use this slot
  static_cast<void>(SLUICE_INVARIANT(slot->state == RequestState::Free, request_state));
  slot->call_back_done = done;
  slot->call_back_context = context;
  const auto finished = [](void* which, const Reply& reply) noexcept {
    const Slot& ended = *static_cast<const Slot*>(which);
    ended.call_back_done(ended.call_back_context, reply.message());
  };
  return submit({.payload = call, .completion = finished, .context = slot}).has_value();
}

/// Ends a call before its reply. Returns false if it has already ended.
bool Requester::give_up(Slot& slot, CallStatus status) noexcept {
  switch (slot.state) {
    case RequestState::AwaitingTurn:
      waiting_.remove(slot);
      break;
    case RequestState::AwaitingReply:
      ++abandoned_;
      break;
    case RequestState::AwaitingFenceRoom:
    case RequestState::AwaitingFence:
    case RequestState::AwaitingDetach:
      if (!slot.being_resent()) return false;
      [[fallthrough]];
    case RequestState::AwaitingRegions:
    case RequestState::AwaitingResend:
    case RequestState::AwaitingNextPart:
      // Between parts, the responder expects the remaining parts and accepts no other message. A region is
      // deregistered after its registration has ended.
      slot.ends_as = status;
      slot.deadline_ns = 0;
      return true;
    case RequestState::Free:
    case RequestState::AwaitingLastPart:
    case RequestState::AwaitingSendDone:
      return false;
  }
  end_call(slot, status);
  return true;
}

void Requester::expire(std::uint64_t now_ns) noexcept {
  for (std::uint32_t i = 0; i < config_.requests; ++i)
    if (slots_[i].deadline_ns != 0 && slots_[i].deadline_ns <= now_ns)
      give_up(slots_[i], CallStatus::TimedOut);
}

void Requester::set_peer_ready(bool ready) noexcept {
  peer_ready_ = ready;
  pump();
}

// --- Connections

Counters& Requester::counters() noexcept {
  return link_ != nullptr ? link_->counters() : context_.counters.of(0);
}

Credits Requester::granted() const noexcept {
  const bool by_limit = link_ != nullptr && link_->rules().credit_per_message;
  return static_cast<Credits>(by_limit ? session_->flow().peer_limit() : granted_);
}

void Requester::attach(Link& link, v2::Session& session) noexcept {
  link_ = &link;
  session_ = &session;
  established_ = false;
  plain_calls_ =
      !config_.keep_xids && config_.inline_bytes >= v2::kMinMsgHeaderBytes && link.config().shortcuts;
  granted_ = 1;
  no_msg_refused_ = false;
  ++attachments_;
}

void Requester::on_established() noexcept {
  static_cast<void>(SLUICE_INVARIANT(link_ != nullptr, connection_state));
  established_ = true;
  pump();
}

void Requester::detach() noexcept {
  static_cast<void>(SLUICE_INVARIANT(quiescent(), pool_balance));
  link_ = nullptr;
  session_ = nullptr;
  established_ = false;
  granted_ = 1;
  outstanding_ = abandoned_ = 0;
  pool_state_ = PoolState::Inaccessible;
  unfenced_.clear();
  by_sequence_.clear();
  for (std::uint32_t i = 0; i < config_.requests; ++i) detach(slots_[i]);
  std::sort(by_sequence_.begin(), by_sequence_.end(),
            [](const Slot* a, const Slot* b) { return a->sequence > b->sequence; });
  for (Slot* slot : by_sequence_) waiting_.push_front(*slot);
  static_cast<void>(SLUICE_INVARIANT(held_receives_ == 0 && outstanding_ == 0, pool_balance));
}

/// Forgets a refusal because the next responder may accept what the last one refused, in particular if it
/// speaks version 1. Arguments that are already in the payload stay there.
void Requester::forget_refusal(Slot& slot) noexcept {
  slot.resent = slot.results_in_reply = false;
  slot.max_segments = ~std::uint32_t{0};
  if (slot.arguments == Slot::Arguments::ToBeUnreduced) slot.arguments = Slot::Arguments::InChunks;
}

/// Detaches a call from a destroyed queue pair: none of its work requests is outstanding and its memory is
/// inaccessible.
void Requester::detach(Slot& slot) noexcept {
  slot.plain = false;
  slot.parts_posted = 0;
  slot.continued_bytes = 0;
  forget_refusal(slot);
  switch (slot.state) {
    case RequestState::Free:
      return;
    case RequestState::AwaitingTurn:
    case RequestState::AwaitingNextPart:
    case RequestState::AwaitingLastPart:
      free_windows(slot);
      if (slot.ends_as) {
        waiting_.remove(slot);
        return end_call(slot, *slot.ends_as);
      }
      if (slot.state != RequestState::AwaitingTurn) transition(slot, RequestState::AwaitingTurn);
      return;
    case RequestState::AwaitingFenceRoom:
    case RequestState::AwaitingFence:
    case RequestState::AwaitingDetach:
      if (!slot.being_resent()) return deliver(slot);
      break;
    case RequestState::AwaitingReply:
      if (!slot.send_once) break;
      set_outcome(slot, CallStatus::ConnectionLost);
      return deliver(slot);
    case RequestState::AwaitingRegions:
    case RequestState::AwaitingResend:
      break;
    case RequestState::AwaitingSendDone:
      return recycle(slot);
  }
  free_windows(slot);
  if (slot.ends_as) return end_call(slot, *slot.ends_as);
  transition(slot, RequestState::AwaitingTurn);
  by_sequence_.push_back(&slot);
}

// --- Outcome of a call

const char* to_string(CallStatus status) noexcept {
  switch (status) {
    case CallStatus::Ok:
      return "ok";
    case CallStatus::ChunkError:
      return "RDMA_ERROR ERR_CHUNK";
    case CallStatus::Refused:
      return "RDMA2_ERROR";
    case CallStatus::VersionError:
      return "RDMA_ERROR ERR_VERS";
    case CallStatus::UnusableReply:
      return "unusable reply";
    case CallStatus::TooLarge:
      return "too large for the connection";
    case CallStatus::TimedOut:
      return "timed out";
    case CallStatus::Cancelled:
      return "cancelled";
    case CallStatus::ConnectionLost:
      return "connection lost";
  }
  return "?";
}

ItemResult Reply::item(std::size_t index, std::uint32_t count) const noexcept {
  using Where = ItemResult::Where;
  const bool offered = index < write_items_ && index < returned_.size();
  const std::uint64_t returned = offered ? returned_[index] : 0;
  if (exact_chunks_) {
    // A result that fits its chunk must not be inline, and its round-up is not part of the chunk (V2-071,
    // V2-096).
    if (!offered || write_segments_[index] == 0) return {Where::Inline};
    return {returned == count ? Where::Placed : Where::Defect};
  }
  if (returned == 0) return {Where::Inline};
  const bool agrees = count <= returned && returned <= xdr::padded(count);
  return {agrees ? Where::Placed : Where::Defect};
}

}  // namespace sluice::rpcrdma
