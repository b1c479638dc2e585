// SPDX-License-Identifier: Apache-2.0
//
// Remote access to the memory of calls, by a memory window for each segment. On a device without memory
// windows a region is registered for each segment, off the reactor, or a short segment is copied through a
// pool. A call waits in AwaitingRegions until its regions have keys, and is then sent like any other.
#include <cstring>
#include <utility>

#include "dataplane/base/invariant.h"
#include "dataplane/rpcrdma/requester/steps.h"

namespace sluice::rpcrdma {
using RequestState = RequestSlot::State;

/// Binds a window over each segment of the first `bytes`, or has a region registered for it: read access for
/// Read chunks, write access for Write and Reply chunks (V1-147).
bool Requester::expose(Slot& slot, std::span<const rdma::Sge> pieces, std::uint64_t bytes,
                       rdma::AccessFlags access) noexcept {
  for (rdma::Sge piece : pieces) {
    piece.length = static_cast<std::uint32_t>(smaller_of<std::uint64_t>(piece.length, bytes));
    bytes -= piece.length;
    while (piece.length > 0) {
      const std::uint32_t length = smaller_of(piece.length, max_segment_bytes());
      SLUICE_INVARIANT_DEBUG(free_windows_ > 0 && slot.segment_count < kMaxRequestSegments, pool_balance);
      const rdma::Sge segment{piece.address, length, piece.lkey};
      if (!(by_regions_ ? expose_segment(slot, segment, access) : bind(slot, segment, access))) return false;
      piece.address += length;
      piece.length -= length;
    }
  }
  return true;
}

bool Requester::bind(Slot& slot, const rdma::Sge& piece, rdma::AccessFlags access) noexcept {
  const rdma::MemoryWindow window = windows_[--free_windows_];
  slot.chunks->windows[slot.window_count++] = window;
  const auto rkey =
      link_->queue_pair().bind_window(window, {piece.address, piece.length}, piece.lkey, access);
  if (!rkey) return false;
  slot.chunks->segments[slot.segment_count++] = {*rkey, piece.length,
                                                 reinterpret_cast<std::uintptr_t>(piece.address)};
  return true;
}

// --- Devices without memory windows

/// Has the memory of a waiting call registered, and takes the call from the queue until that is done. Returns
/// false if the call has to wait first.
bool Requester::register_segments(Slot& slot, const Shape& shape) noexcept {
  slot.registered = 0;
  slot.exposed_version = static_cast<std::uint8_t>(link_->version());
  if (!take_resources(slot, shape)) {
    // The connection is being closed if a later segment was refused. detach() takes back the earlier ones.
    if (slot.segment_count == 0) slot.exposed_version = 0;
    return false;
  }
  if (slot.window_count == 0) return true;
  waiting_.remove(slot);
  transition(slot, RequestState::AwaitingRegions);
  return true;
}

bool Requester::expose_segment(Slot& slot, const rdma::Sge& piece, rdma::AccessFlags access) noexcept {
  const std::uint16_t segment = slot.segment_count++;
  slot.chunks->segments[segment] = {rdma::Rkey{}, piece.length,
                                    reinterpret_cast<std::uintptr_t>(piece.address)};
  slot.regions->pooled[segment] = slot.regions->placed[segment] = nullptr;
  if (piece.length <= pool_.buffer_bytes() && expose_in_pool(slot, piece, access)) return true;
  const rdma::MemoryWindow window = windows_[--free_windows_];
  slot.regions->segment_of_window[slot.window_count] = static_cast<std::uint8_t>(segment);
  slot.chunks->windows[slot.window_count++] = window;
  const bool asked =
      link_->queue_pair().register_region(window, {piece.address, piece.length}, piece.lkey, access,
                                          link_->wr_id(WrKind::Registered, slot.index));
  posted_ += asked;
  return asked;
}

/// Returns false if the pool is in use or not accessible yet.
bool Requester::expose_in_pool(Slot& slot, const rdma::Sge& piece, rdma::AccessFlags access) noexcept {
  if (pool_state_ == PoolState::Inaccessible) request_pool_key();
  if (pool_state_ != PoolState::Accessible) return false;
  std::byte* const buffer = pool_.acquire();
  if (buffer == nullptr) return false;
  const std::size_t segment = slot.segment_count - std::size_t{1};
  slot.regions->pooled[segment] = buffer;
  if ((access & rdma::kRemoteRead) != 0)
    std::memcpy(buffer, piece.address, piece.length);
  else
    slot.regions->placed[segment] = piece.address;
  // An unwritten Reply chunk must not be mistaken for a reply.
  if (piece.address == slot.reply_memory) std::memcpy(buffer, piece.address, xdr::kUnit);
  slot.chunks->segments[segment].handle = pool_key_;
  slot.chunks->segments[segment].offset = reinterpret_cast<std::uintptr_t>(buffer);
  return true;
}

void Requester::request_pool_key() noexcept {
  const bool asked = link_->queue_pair().register_region(pool_window_, pool_region_.bytes, pool_region_.lkey,
                                                         rdma::kRemoteRead | rdma::kRemoteWrite,
                                                         link_->wr_id(WrKind::Registered, kNoWr));
  if (!asked) return;
  pool_state_ = PoolState::Registering;
  ++posted_;
}

void Requester::on_registered(std::uint16_t index, rdma::Rkey rkey) noexcept {
  SLUICE_INVARIANT_DEBUG(posted_ > 0 && by_regions_, pool_balance);
  --posted_;
  if (index == kNoWr) {
    pool_state_ = PoolState::Accessible;
    pool_key_ = rkey;
    return;
  }
  Slot& slot = slots_[index];
  if (slot.state != RequestState::AwaitingRegions) return;  // another region was refused at once
  SLUICE_INVARIANT_DEBUG(slot.registered < slot.window_count, request_state);
  slot.chunks->segments[slot.regions->segment_of_window[slot.registered++]].handle = rkey;
  if (slot.registered < slot.window_count) return;
  if (slot.ends_as) {
    end_call(slot, *slot.ends_as);
  } else {
    transition(slot, RequestState::AwaitingTurn);
    const Slot* const first = waiting_.front();
    if (first == nullptr || !first->in_parts())
      waiting_.push_front(slot);
    else
      waiting_.push_back(slot);
  }
  pump();
}

/// The connection is being closed. detach() returns the memory once the queue pair is destroyed.
void Requester::on_registration_failed(std::uint16_t index) noexcept {
  static_cast<void>(SLUICE_INVARIANT(posted_ > 0 && by_regions_, pool_balance));
  --posted_;
  if (index == kNoWr) pool_state_ = PoolState::Inaccessible;
}

/// Ends the access to the regions of a call. If the queue pair has ended, it does so itself, and detach()
/// returns the memory.
void Requester::deregister(Slot& slot) noexcept {
  transition(slot, RequestState::AwaitingFence);
  bool asked = true;
  for (std::uint32_t i = 0; asked && i < slot.window_count; ++i)
    asked = link_->queue_pair().deregister_region(
        slot.chunks->windows[i], link_->wr_id(WrKind::Invalidated, slot.index),
        static_cast<std::uint8_t>(i + 1u == slot.window_count ? rdma::kSignaled : 0));
  if (asked)
    ++posted_;
  else
    transition(slot, RequestState::AwaitingDetach);
}

/// Takes back a waiting call whose memory was registered for another version of the protocol. Returns true,
/// since the next call need not wait for it.
bool Requester::end_outdated(Slot& slot) noexcept {
  waiting_.remove(slot);
  slot.after_fence = Slot::AfterFence::Resend;
  if (slot.window_count > 0) return fence(slot), true;
  free_windows(slot);
  waiting_.push_front(slot);
  return true;
}

/// Copies the results of a call from the pool to where they belong.
void Requester::take_from_pool(Slot& slot) noexcept {
  for (std::uint32_t i = 0; i < slot.segment_count; ++i)
    if (std::byte* const placed = slot.regions->placed[i]; placed != nullptr)
      std::memcpy(placed, slot.regions->pooled[i], slot.chunks->segments[i].length);
}

/// Clears the buffers of a call, because the peer can read the pool, and returns them.
void Requester::return_to_pool(Slot& slot) noexcept {
  for (std::uint32_t i = 0; i < slot.segment_count; ++i) {
    std::byte* const buffer = std::exchange(slot.regions->pooled[i], nullptr);
    slot.regions->placed[i] = nullptr;
    if (buffer == nullptr) continue;
    std::memset(buffer, 0, slot.chunks->segments[i].length);
    pool_.release(buffer);
  }
}

}  // namespace sluice::rpcrdma
