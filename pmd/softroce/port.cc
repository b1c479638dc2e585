// SPDX-License-Identifier: Apache-2.0
#include "pmd/softroce/port.h"

#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_mbuf.h>
#include <rte_ring.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dataplane/base/setup_error.h"
#include "dataplane/base/small_algorithms.h"
#include "pmd/common/sleep.h"
#include "pmd/softroce/device.h"
#include "pmd/softroce/flow_rules.h"
#include "pmd/softroce/frame.h"
#include "pmd/softroce/pools.h"

namespace sluice::rdma::softroce {
namespace {

/// For a card to send, and for a memif peer, whose process may wait for a processor, to read.
constexpr std::uint64_t kLastFramesOfCardNs = 20'000'000;
constexpr std::uint64_t kLastFramesOfMemifNs = 200'000'000;

rte_ring* make_ring(const std::string& name, int numa_node) {
  rte_ring* ring = rte_ring_create(name.c_str(), kHandOverDepth, numa_node,
                                   RING_F_SP_ENQ | RING_F_SC_DEQ | RING_F_EXACT_SZ);  // else one less
  if (ring == nullptr)
    throw SetupError("Cannot make the ring '" + name + "' (" + rte_strerror(rte_errno) + ").");
  return ring;
}

void free_all(rte_ring* ring) noexcept {
  if (ring == nullptr) return;
  void* buffer;
  while (rte_ring_sc_dequeue(ring, &buffer) == 0) rte_pktmbuf_free(static_cast<rte_mbuf*>(buffer));
  rte_ring_free(ring);
}

}  // namespace

EthernetPort::EthernetPort(const PortConfig& config) : config_(config), link_(config.lanes) {
  if (config_.addresses.empty())
    throw SetupError("softroce port " + config_.name +
                     " has no address: set addresses = [\"192.0.2.1/24\"] in [device] of the configuration.");
  if (config_.lanes < 1 || config_.lanes > kMaxLanes)
    throw SetupError("softroce port " + config_.name + ": 1 to " + std::to_string(kMaxLanes) +
                     " reactors can share a port.");
  if (config_.max_queue_pairs > kMaxQueuePairs)
    throw SetupError("softroce port " + config_.name + ": at most " + std::to_string(kMaxQueuePairs) +
                     " queue pairs on a reactor.");
  configure();
  for (std::uint32_t from = 0; from < config_.lanes; ++from) {
    for (std::uint32_t to = 0; to < config_.lanes; ++to)
      if (from != to)
        to_lane_[from][to] =
            make_ring(config_.name + "-" + std::to_string(from) + "to" + std::to_string(to), numa_node_);
    if (from >= shape_.queues)
      to_queue_[from] = make_ring(config_.name + "-tx" + std::to_string(from), numa_node_);
  }
}

EthernetPort::~EthernetPort() {
  // What the lanes have sent last, such as an acknowledgement, is lost with an ethdev that is closed before its peer, or the card,
  // has read it. A process that ends has no time for that.
  if (!leaves_pools() && (guard_ || on_card_)) sleep_ns(guard_ ? kLastFramesOfMemifNs : kLastFramesOfCardNs);
  if (guard_) guard_->hold();
  const bool has_ethdev = link_.facts().use != EthdevUse::Closed;
  if (has_ethdev) stop_ethdev();
  for (auto& row : to_lane_)
    for (rte_ring* ring : row) free_all(ring);
  for (rte_ring* ring : to_queue_) free_all(ring);
  for (InHand& each : in_hand_) rte_pktmbuf_free_bulk(each.buffers.data(), each.count);
  if (has_ethdev) rte_eth_dev_close(config_.ethdev);
  if (guard_) guard_->release();
  guard_.reset();
  for (rte_mempool* pool : pools_) free_pool(pool);
  for (rte_mempool* pool : left_pools_) free_pool(pool);
}

void EthernetPort::free_sent(std::uint32_t lane) const noexcept {
  if (link_.use(lane) != EthdevUse::Open) return;
  rte_eth_tx_done_cleanup(config_.ethdev, static_cast<std::uint16_t>(lane), 0);
}

/// Of virtual ethdevs it is made up.
double EthernetPort::line_rate() const noexcept {
  rte_eth_link link{};
  const bool known = on_card_ && rte_eth_link_get_nowait(config_.ethdev, &link) == 0;
  return CongestionRate::of_link(known ? link.link_speed : RTE_ETH_SPEED_NUM_UNKNOWN);
}

std::unique_ptr<SoftRoce> EthernetPort::make_device(std::uint32_t lane) {
  return std::make_unique<SoftDevice>(shared_from_this(), lane);
}

bool EthernetPort::hand_over(std::uint32_t from, std::uint32_t to, rte_mbuf* buffer) noexcept {
  if (to < config_.lanes && rte_ring_sp_enqueue(to_lane_[from][to], buffer) == 0) return true;
  rte_pktmbuf_free(buffer);
  return false;
}

std::uint16_t EthernetPort::receive_from_queue(std::uint32_t lane, rte_mbuf** buffers,
                                               std::uint16_t room) noexcept {
  if (lane >= shape_.queues || link_.use(lane) != EthdevUse::Open) return 0;
  const Burst burst(guard_.get(), lane);
  if (!burst) return 0;
  return rte_eth_rx_burst(config_.ethdev, static_cast<std::uint16_t>(lane), buffers, room);
}

std::uint16_t EthernetPort::receive_from_lane(std::uint32_t from, std::uint32_t to, rte_mbuf** buffers,
                                              std::uint16_t room) noexcept {
  if (from == to) return 0;
  return static_cast<std::uint16_t>(
      rte_ring_sc_dequeue_burst(to_lane_[from][to], reinterpret_cast<void**>(buffers), room, nullptr));
}

std::uint16_t EthernetPort::burst(std::uint32_t lane, std::span<rte_mbuf*> packets) const noexcept {
  if (packets.empty() || link_.use(lane) != EthdevUse::Open) return 0;
  const Burst guarded(guard_.get(), lane);
  if (!guarded) return 0;
  return rte_eth_tx_burst(config_.ethdev, static_cast<std::uint16_t>(lane), packets.data(),
                          static_cast<std::uint16_t>(packets.size()));
}

std::uint16_t EthernetPort::transmit(std::uint32_t lane, std::span<rte_mbuf*> packets) noexcept {
  return shares_queue(lane) ? take_turns(lane, packets).own : burst(lane, packets);
}

bool EthernetPort::transmit_for_others(std::uint32_t lane) noexcept {
  return take_turns(lane, {}).others;
}

EthernetPort::Turn EthernetPort::take_turns(std::uint32_t lane, std::span<rte_mbuf*> own) noexcept {
  Turn turn;
  auto& [at, left] = turns_[lane];
  for (std::uint32_t visited = lane; visited < config_.lanes; visited += shape_.queues) {
    const bool is_own = at == 0;
    const std::span<rte_mbuf*> packets = is_own ? own : in_hand(lane + at * shape_.queues);
    const auto offered = packets.first(smaller_of<std::size_t>(packets.size(), left));
    const std::uint16_t sent = burst(lane, offered);
    if (is_own)
      turn.own = sent;
    else
      turn.others |= drop_from_hand(lane + at * shape_.queues, sent);
    if (sent < offered.size()) {
      left -= sent;
      return turn;
    }
    at = lane + (at + 1) * shape_.queues < config_.lanes ? at + 1 : 0;
    left = kTransmitBurst;
  }
  return turn;
}

std::span<rte_mbuf*> EthernetPort::in_hand(std::uint32_t lane) noexcept {
  auto& [count, buffers] = in_hand_[lane];
  if (count == 0)
    count = rte_ring_sc_dequeue_burst(to_queue_[lane], reinterpret_cast<void**>(buffers.data()),
                                      kTransmitBurst, nullptr);
  return {buffers.data(), count};
}

bool EthernetPort::drop_from_hand(std::uint32_t lane, std::uint16_t sent) noexcept {
  auto& [count, buffers] = in_hand_[lane];
  std::copy(buffers.begin() + sent, buffers.begin() + count, buffers.begin());
  count -= sent;
  return sent > 0;
}

std::optional<std::uint16_t> first_ethdev() noexcept {
  if (rte_eth_dev_count_avail() == 0) return std::nullopt;
  return rte_eth_find_next(0);
}

std::shared_ptr<Port> Port::open(const PortConfig& config) {
  return std::make_shared<EthernetPort>(config);
}

}  // namespace sluice::rdma::softroce
