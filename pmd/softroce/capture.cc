// SPDX-License-Identifier: Apache-2.0
#include "pmd/softroce/capture.h"

#include <rte_cycles.h>
#include <rte_mbuf_core.h>

#include <cstring>
#include <new>
#include <string>

#include "dataplane/base/invariant.h"
#include "dataplane/base/setup_error.h"
#include "dataplane/base/small_algorithms.h"
#include "pmd/common/sleep.h"
#include "pmd/softroce/frame.h"

namespace sluice::rdma::softroce {
namespace {

/// Interval between two checks whether a lane is in add().
constexpr std::uint64_t kLookAgainNs = 100'000;

}  // namespace

Capture::Capture(const PortConfig& port)
    : lane_count_(port.lanes),
      longest_frame_bytes_(port.link_mtu + static_cast<std::uint32_t>(kEthernetBytes + kVlanBytes)) {}

void Capture::start(const CaptureFilter& filter, std::uint32_t snap_bytes) {
  static_cast<void>(SLUICE_INVARIANT(!running_.load(std::memory_order_relaxed), queue_pair_state));
  kept_bytes_ = smaller_of(bounded(snap_bytes, kMinSnapBytes, kMaxSnapBytes), longest_frame_bytes_);
  filter_ = filter;
  try {
    for (std::uint32_t i = 0; i < lane_count_; ++i) lanes_[i].ring.allocate(kept_bytes_);
  } catch (const std::bad_alloc&) {
    release();
    throw SetupError("There is not enough memory for a capture, which requires " +
                     std::to_string(lane_count_ * kFrameRingBytes >> 20) + " MiB.");
  }
  for (Lane& lane : lanes_) lane.dropped.store(0, std::memory_order_relaxed);
  queue_pair_.store(filter.queue_pair, std::memory_order_relaxed);
  running_.store(true, std::memory_order_seq_cst);
}

void Capture::stop() {
  running_.store(false, std::memory_order_seq_cst);
  queue_pair_.store(0, std::memory_order_relaxed);
  for (const Lane& lane : lanes_)
    while (lane.inside.load(std::memory_order_seq_cst)) sleep_ns(kLookAgainNs);
}

void Capture::release() {
  static_cast<void>(SLUICE_INVARIANT(!running_.load(std::memory_order_relaxed), queue_pair_state));
  for (Lane& lane : lanes_) lane.ring.release();
}

const CapturedFrame* Capture::next() noexcept {
  const CapturedFrame* oldest = nullptr;
  for (std::uint32_t i = 0; i < lane_count_; ++i) {
    const CapturedFrame* frame = lanes_[i].ring.front();
    if (frame == nullptr || (oldest != nullptr && oldest->tsc <= frame->tsc)) continue;
    oldest = frame;
    from_ = &lanes_[i].ring;
  }
  return oldest;
}

void Capture::pop() noexcept {
  if (!SLUICE_INVARIANT(from_ != nullptr, ring_index)) return;
  from_->pop();
}

std::uint64_t Capture::dropped() const noexcept {
  std::uint64_t sum = 0;
  for (const Lane& lane : lanes_) sum += lane.dropped.load(std::memory_order_relaxed);
  return sum;
}

// Sequentially consistent with stop(): either add() sees that the capture has stopped, or stop() sees the
// lane inside add().
void Capture::add(std::uint32_t number, std::span<rte_mbuf* const> packets, Way way) noexcept {
  if (packets.empty()) return;
  Lane& lane = lanes_[number];
  SLUICE_INVARIANT_DEBUG(number < lane_count_ && !lane.inside.load(std::memory_order_relaxed), object_owner);
  lane.inside.store(true, std::memory_order_seq_cst);
  if (running_.load(std::memory_order_seq_cst)) {
    const std::uint64_t tsc = rte_rdtsc();
    for (const rte_mbuf* packet : packets) add_one(lane, *packet, way, tsc);
  }
  lane.inside.store(false, std::memory_order_release);  // pairs with stop(): the lane no longer uses its ring
}

void Capture::add_one(Lane& lane, const rte_mbuf& packet, Way way, std::uint64_t tsc) noexcept {
  const auto* head = rte_pktmbuf_mtod(&packet, const std::byte*);
  if (!matches(filter_, lane.flow, way, {head, packet.data_len})) return;
  CapturedFrame* frame = lane.ring.claim();
  if (frame == nullptr) {
    lane.dropped.store(lane.dropped.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    return;
  }
  std::uint32_t kept = 0;
  for (const rte_mbuf* piece = &packet; piece != nullptr && kept < kept_bytes_; piece = piece->next) {
    const std::uint32_t bytes = smaller_of<std::uint32_t>(piece->data_len, kept_bytes_ - kept);
    std::memcpy(frame->bytes() + kept, rte_pktmbuf_mtod(piece, const std::byte*), bytes);
    kept += bytes;
  }
  SLUICE_INVARIANT_DEBUG(kept <= kept_bytes_, buffer_bounds);
  frame->tsc = tsc;
  frame->wire_bytes = packet.pkt_len;
  frame->kept_bytes = kept;
  frame->way = way;
  lane.ring.publish();
}

}  // namespace sluice::rdma::softroce
