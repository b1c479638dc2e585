// SPDX-License-Identifier: Apache-2.0
#include "tests/driver/lazy_card.h"

#include <rte_errno.h>
#include <rte_eth_ring.h>
#include <rte_ethdev.h>
#include <rte_lcore.h>
#include <rte_mbuf.h>
#include <rte_ring.h>

#include <array>
#include <cstring>
#include <map>
#include <span>
#include <stdexcept>

#include "tests/driver/faulty_wire.h"
#include "tests/driver/flow_stub.h"

namespace sluice::rdma::conformance {
namespace {

std::string fresh_name(const char* what) {
  static int made = 0;
  return what + std::to_string(made++);
}

rte_ring* make_ring(std::uint32_t frames) {
  rte_ring* ring = rte_ring_create(fresh_name("lazy-ring").c_str(), frames, 0, RING_F_EXACT_SZ);
  if (ring == nullptr) throw std::runtime_error("no ring: " + std::string(rte_strerror(rte_errno)));
  return ring;
}

void free_segments(std::deque<rte_mbuf*>& segments, std::size_t left) {
  for (; segments.size() > left; segments.pop_front()) rte_pktmbuf_free_seg(segments.front());
}

/// Cards by ethdev number. DPDK reuses the number of a closed ethdev.
std::map<std::uint16_t, LazyCard*> cards;

/// Frees all transmitted packets of a port that closes, as a driver does.
int free_all_sent(std::uint16_t ethdev, rte_eth_event_type, void*, void*) {
  LazyCard* const closed = LazyCard::of(ethdev);
  for (std::uint32_t queue = 0; closed != nullptr && queue < closed->queues(); ++queue)
    closed->free_sent(queue);
  return 0;
}

}  // namespace

AsLane::AsLane(std::uint32_t lane) noexcept : before_(RTE_PER_LCORE(_lcore_id)) {
  RTE_PER_LCORE(_lcore_id) = 1 + lane;
}

AsLane::~AsLane() {
  RTE_PER_LCORE(_lcore_id) = before_;
}

LazyCard::LazyCard(std::uint16_t queues) : queues_(queues) {
  start_dpdk();
  std::array<rte_ring*, 8> to_port{};
  std::array<rte_ring*, 8> from_port{};
  for (std::uint16_t i = 0; i < queues; ++i) {
    queues_[i].to_port = to_port[i] = make_ring(kDescriptors);
    queues_[i].from_port = from_port[i] = make_ring(kFramesAtOnce);
  }
  const int made =
      rte_eth_from_rings(fresh_name("lazy").c_str(), to_port.data(), queues, from_port.data(), queues, 0);
  if (made < 0) throw std::runtime_error("no ethdev: " + std::string(rte_strerror(rte_errno)));
  ethdev_ = static_cast<std::uint16_t>(made);
  cards[ethdev_] = this;
  rte_eth_dev_callback_register(ethdev_, RTE_ETH_EVENT_DESTROY, free_all_sent, nullptr);
}

LazyCard* LazyCard::of(std::uint16_t ethdev) {
  const auto found = cards.find(ethdev);
  return found != cards.end() ? found->second : nullptr;
}

LazyCard::~LazyCard() {
  cards.erase(ethdev_);
  for (Queue& queue : queues_) {
    free_segments(queue.empty, 0);
    for (rte_ring* ring : {queue.to_port, queue.from_port}) {
      void* frame;
      while (rte_ring_dequeue(ring, &frame) == 0) rte_pktmbuf_free(static_cast<rte_mbuf*>(frame));
      rte_ring_free(ring);
    }
  }
}

void LazyCard::refill(const std::string& port, std::uint32_t queue) {
  rte_mempool* const pool = rte_mempool_lookup((port + "-rx" + std::to_string(queue)).c_str());
  Queue& to = queues_[queue];
  while (to.empty.size() + rte_ring_count(to.to_port) < kDescriptors) {
    rte_mbuf* const buffer = rte_pktmbuf_alloc(pool);
    if (buffer == nullptr) {
      ++short_of_buffers_;
      return;
    }
    to.empty.push_back(buffer);
  }
}

void LazyCard::carry_to(LazyCard& peer, std::uint32_t queue) {
  Queue& from = queues_[queue];
  void* frame;
  while (rte_ring_dequeue(from.from_port, &frame) == 0) {
    const auto& sent = *static_cast<rte_mbuf*>(frame);
    peer.receive(sent, peer.queue_for(sent, queue));
    retire(from, static_cast<rte_mbuf*>(frame));
  }
}

std::uint32_t LazyCard::queue_for(const rte_mbuf& frame, std::uint32_t senders) const {
  const std::span headers(rte_pktmbuf_mtod(&frame, const std::byte*), frame.data_len);
  return queue_by_rule(ethdev_, headers).value_or(static_cast<std::uint16_t>(senders % queues()));
}

void LazyCard::receive(const rte_mbuf& frame, std::uint32_t queue) {
  Queue& to = queues_[queue];
  if (to.empty.empty()) {
    ++lost_;
    return;
  }
  rte_mbuf* const buffer = to.empty.front();
  to.empty.pop_front();
  for (const rte_mbuf* segment = &frame; segment != nullptr; segment = segment->next)
    std::memcpy(rte_pktmbuf_append(buffer, segment->data_len), rte_pktmbuf_mtod(segment, const std::byte*),
                segment->data_len);
  rte_ring_enqueue(to.to_port, buffer);
}

void LazyCard::free_sent(std::uint32_t queue) {
  free_segments(queues_[queue].sent, 0);
}

/// Puts the segments into the transmit descriptors that follow the last used ones, and frees the segments
/// that were there.
void LazyCard::retire(Queue& queue, rte_mbuf* frame) {
  in_segments_ += frame->nb_segs > 1;
  for (rte_mbuf* segment = frame; segment != nullptr; segment = segment->next) queue.sent.push_back(segment);
  free_segments(queue.sent, kDescriptors);
}

}  // namespace sluice::rdma::conformance
