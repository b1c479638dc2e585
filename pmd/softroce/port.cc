// SPDX-License-Identifier: Apache-2.0
#include "pmd/softroce/port.h"

#include <rte_bus.h>
#include <rte_byteorder.h>
#include <rte_devargs.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_flow.h>
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

constexpr std::uint16_t kDescriptors = 1024;
/// For a card to send, and for a memif peer, whose process may wait for a processor, to read.
constexpr std::uint64_t kLastFramesOfCardNs = 20'000'000;
constexpr std::uint64_t kLastFramesOfMemifNs = 200'000'000;

SetupError port_error(const PortConfig& config, const char* what, int error) {
  const char* const advice = error == EPERM
                                 ? "an interface of the kernel's wants CAP_NET_RAW and CAP_NET_ADMIN."
                                 : "check the ethdev in [device] of the configuration.";
  return SetupError("softroce port " + config.name + ": cannot " + what + " (" + rte_strerror(error) +
                    "): " + advice);
}

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

/// As it was made; empty: not by devargs.
std::string_view arguments_of(const rte_eth_dev_info& info) noexcept {
  const rte_devargs* const given = info.device != nullptr ? rte_dev_devargs(info.device) : nullptr;
  return given != nullptr && given->args != nullptr ? given->args : "";
}

std::string_view bus_of(const rte_eth_dev_info& info) noexcept {
  return info.device != nullptr ? rte_bus_name(rte_dev_bus(info.device)) : "";
}

}  // namespace

EthernetPort::EthernetPort(const PortConfig& config) : config_(config) {
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
}

EthernetPort::~EthernetPort() {
  // What the lanes have sent last, such as an acknowledgement, is lost with an ethdev that is closed before its peer, or the card,
  // has read it. A process that ends has no time for that.
  if (!leaves_pools() && (guard_ || on_card_)) sleep_ns(guard_ ? kLastFramesOfMemifNs : kLastFramesOfCardNs);
  if (guard_) guard_->hold();
  flow_rules_.remove();
  rte_eth_dev_stop(config_.ethdev);
  for (auto& row : to_lane_)
    for (rte_ring* ring : row) free_all(ring);
  for (rte_ring* ring : to_queue_) free_all(ring);
  for (InHand& each : in_hand_) rte_pktmbuf_free_bulk(each.buffers.data(), each.count);
  rte_eth_dev_close(config_.ethdev);
  if (guard_) guard_->release();
  guard_.reset();
  for (rte_mempool* pool : pools_) free_pool(pool);
  for (rte_mempool* pool : left_pools_) free_pool(pool);
}

void EthernetPort::configure() {
  rte_eth_dev_info info;
  if (const int error = rte_eth_dev_info_get(config_.ethdev, &info); error != 0)
    throw port_error(config_, "query the ethdev", -error);
  if (std::string_view(info.driver_name) == "net_memif")
    guard_ = std::make_unique<InterruptGuard>(config_.lanes);
  const int socket = rte_eth_dev_socket_id(config_.ethdev);
  numa_node_ = socket < 0 ? 0 : socket;
  const auto queue_count = bounded<std::uint32_t>(
      config_.hardware_queues, 1,
      smaller_of<std::uint32_t>(config_.lanes, smaller_of(info.max_rx_queues, info.max_tx_queues)));
  frame_bytes_ =
      larger_of<std::uint32_t>(config_.link_mtu + kEthernetBytes + kVlanBytes, config_.frame_buffer_bytes);

  rte_eth_conf conf{};
  if (queue_count > 1) {
    conf.rxmode.mq_mode = RTE_ETH_MQ_RX_RSS;
    conf.rx_adv_conf.rss_conf.rss_hf = (RTE_ETH_RSS_UDP | RTE_ETH_RSS_IP) & info.flow_type_rss_offloads;
  }
  on_card_ = is_card(bus_of(info));
  if (on_card_) {  // a virtual ethdev has the MTU of the interface below it
    if (config_.link_mtu > info.max_mtu)
      throw SetupError("The network card of softroce supports packets of at most " +
                       std::to_string(info.max_mtu) + " bytes: lower mtu in [device] to that.");
    conf.rxmode.mtu = config_.link_mtu;
  }
  conf.txmode.offloads = info.tx_offload_capa & RTE_ETH_TX_OFFLOAD_MULTI_SEGS;
  const auto queues = static_cast<std::uint16_t>(queue_count);
  if (const int error = rte_eth_dev_configure(config_.ethdev, queues, queues, &conf); error != 0)
    throw port_error(config_, "configure the ethdev", -error);
  std::uint16_t rx = kDescriptors;
  std::uint16_t tx = kDescriptors;
  rte_eth_dev_adjust_nb_rx_tx_desc(config_.ethdev, &rx, &tx);
  shape_ = {
      .lanes = config_.lanes, .queues = queue_count, .receive_descriptors = rx, .transmit_descriptors = tx};
  for (std::uint16_t queue = 0; queue < queues; ++queue) {
    const std::string name = config_.name + "-rx" + std::to_string(queue);
    pools_[queue] =
        rte_pktmbuf_pool_create(name.c_str(), receive_buffers(shape_), kReceiveCache, 0,
                                static_cast<std::uint16_t>(RTE_PKTMBUF_HEADROOM + frame_bytes_), numa_node_);
    if (pools_[queue] == nullptr)
      throw SetupError("softroce port " + config_.name + ": cannot make receive buffers (" +
                       rte_strerror(rte_errno) + "): give DPDK more memory (dpdk_memory_mib in [device]).");
    const auto socket_id = static_cast<unsigned>(numa_node_);
    if (const int error =
            rte_eth_rx_queue_setup(config_.ethdev, queue, rx, socket_id, nullptr, pools_[queue]);
        error != 0)
      throw port_error(config_, "set up a receive queue", -error);
    if (const int error = set_up_transmit_queue(queue, tx, info); error != 0)
      throw port_error(config_, "set up a transmit queue", -error);
  }
  if (guard_) guard_->hold();
  const int error = rte_eth_dev_start(config_.ethdev);
  if (guard_) guard_->release();
  if (error != 0) throw port_error(config_, "start the ethdev", -error);
  look_for_obstacles(info);
  if (queue_count > 1) flow_rules_.make(config_, queue_count);
  rte_eth_allmulticast_enable(
      config_.ethdev);  // for neighbour solicitations; may fail, some ethdevs do not need it
  rte_ether_addr address;
  rte_eth_macaddr_get(config_.ethdev, &address);
  std::memcpy(mac_.data(), address.addr_bytes, mac_.size());

  for (std::uint32_t from = 0; from < config_.lanes; ++from) {
    for (std::uint32_t to = 0; to < config_.lanes; ++to)
      if (from != to)
        to_lane_[from][to] =
            make_ring(config_.name + "-" + std::to_string(from) + "to" + std::to_string(to), numa_node_);
    if (from >= queue_count)
      to_queue_[from] = make_ring(config_.name + "-tx" + std::to_string(from), numa_node_);
  }
}

bool EthernetPort::wants_in_place(const rte_eth_dev_info& info) const noexcept {
  return config_.transmit_in_place && (config_.card_reads_payload || !is_card(bus_of(info)));
}

/// A card that reads payload where it lies has to say of each packet that it has been sent, and not of each 32nd.
int EthernetPort::set_up_transmit_queue(std::uint16_t queue, std::uint16_t descriptors,
                                        const rte_eth_dev_info& info) const {
  const auto socket = static_cast<unsigned>(numa_node_);
  if (is_card(bus_of(info)) && wants_in_place(info)) {
    rte_eth_txconf each = info.default_txconf;
    each.tx_rs_thresh = 1;
    if (rte_eth_tx_queue_setup(config_.ethdev, queue, descriptors, socket, &each) == 0) return 0;
  }
  return rte_eth_tx_queue_setup(config_.ethdev, queue, descriptors, socket, nullptr);
}

/// Of a started ethdev: whether payload can be sent from where it lies.
void EthernetPort::look_for_obstacles(const rte_eth_dev_info& info) {
  if (!wants_in_place(info)) return;
  const std::uint16_t most_segments = info.tx_desc_lim.nb_mtu_seg_max;  // zero: the driver does not say
  const EthdevTraits traits{.driver = info.driver_name,
                            .arguments = arguments_of(info),
                            .bus = bus_of(info),
                            .sends_segments = (info.tx_offload_capa & RTE_ETH_TX_OFFLOAD_MULTI_SEGS) != 0 &&
                                              (most_segments == 0 || most_segments >= kSegmentsInPlace),
                            .frees_when_asked = rte_eth_tx_done_cleanup(config_.ethdev, 0, 0) >= 0,
                            .addresses_are_virtual = rte_eal_iova_mode() == RTE_IOVA_VA};
  packet_memory_ = softroce::packet_memory(traits);
  transmission_.in_place = packet_memory_ != PacketMemory::Unknown;
  transmission_.obstacle = why_copied(traits);
  if (packet_memory_ == PacketMemory::UntilFreed && !card_memory_.open(*info.device)) cannot_reach();
}

void EthernetPort::cannot_reach() {
  transmission_ = {.obstacle = "memory cannot be mapped for the card (" + card_memory_.error() + ")"};
}

bool EthernetPort::reach(std::span<std::byte> memory) {
  if (packet_memory_ != PacketMemory::UntilFreed) return true;
  if (!transmission_.in_place) return false;
  if (card_memory_.add(memory)) return true;
  cannot_reach();
  return false;
}

void EthernetPort::free_sent(std::uint32_t lane) const noexcept {
  rte_eth_tx_done_cleanup(config_.ethdev, static_cast<std::uint16_t>(lane), 0);
}

/// Of virtual ethdevs it is made up.
double EthernetPort::line_rate() const noexcept {
  rte_eth_link link{};
  const bool known = on_card_ && rte_eth_link_get_nowait(config_.ethdev, &link) == 0;
  return CongestionRate::of_link(known ? link.link_speed : RTE_ETH_SPEED_NUM_UNKNOWN);
}

bool EthernetPort::link_is_up() const noexcept {
  rte_eth_link link{};
  return rte_eth_link_get_nowait(config_.ethdev, &link) != 0 || link.link_status == RTE_ETH_LINK_UP;
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
  if (lane >= shape_.queues) return 0;
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
  if (packets.empty()) return 0;
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

namespace {

/// Of the destination QP's low byte, behind the UDP header.
constexpr std::int32_t kLowByteOfQueuePair = 7;

/// Packets of RoCEv2 for the queue pairs of a lane. Its items point into it.
class Match {
 public:
  Match(bool tagged, bool v6, std::uint32_t lane) : low_bits_(static_cast<std::uint8_t>(lane)) {
    port_.hdr.dst_port = rte_cpu_to_be_16(kRoceUdpPort);
    port_mask_.hdr.dst_port = 0xFFFF;
    queue_pair_.relative = 1;
    queue_pair_.offset = kLowByteOfQueuePair;
    queue_pair_.length = 1;
    queue_pair_.pattern = &low_bits_;
    // As rte_flow_item_raw_mask, which C++ does not have.
    queue_pair_mask_.relative = 1;
    queue_pair_mask_.search = 1;
    queue_pair_mask_.reserved = 0x3FFFFFFF;
    queue_pair_mask_.offset = -1;
    queue_pair_mask_.limit = 0xFFFF;
    queue_pair_mask_.length = 0xFFFF;
    queue_pair_mask_.pattern = &kLowBitsMask;
    add(RTE_FLOW_ITEM_TYPE_ETH);
    if (tagged) add(RTE_FLOW_ITEM_TYPE_VLAN);
    add(v6 ? RTE_FLOW_ITEM_TYPE_IPV6 : RTE_FLOW_ITEM_TYPE_IPV4);
    add(RTE_FLOW_ITEM_TYPE_UDP, &port_, &port_mask_);
    add(RTE_FLOW_ITEM_TYPE_RAW, &queue_pair_, &queue_pair_mask_);
    add(RTE_FLOW_ITEM_TYPE_END);
  }
  Match(const Match&) = delete;
  Match& operator=(const Match&) = delete;

  const rte_flow_item* items() const noexcept { return items_.data(); }

 private:
  void add(rte_flow_item_type type, const void* spec = nullptr, const void* mask = nullptr) {
    items_.push_back({.type = type, .spec = spec, .last = nullptr, .mask = mask});
  }

  static constexpr std::uint8_t kLowBitsMask = kMaxLanes - 1;
  const std::uint8_t low_bits_;
  rte_flow_item_udp port_{};
  rte_flow_item_udp port_mask_{};
  rte_flow_item_raw queue_pair_{};
  rte_flow_item_raw queue_pair_mask_{};
  std::vector<rte_flow_item> items_;
};

}  // namespace

bool FlowRules::make_one(const PortConfig& config, bool v6, std::uint32_t lane) {
  const Match match(config.vlan != kNoVlan, v6, lane);
  const rte_flow_action_queue queue{.index = static_cast<std::uint16_t>(lane)};
  const rte_flow_action actions[] = {{RTE_FLOW_ACTION_TYPE_QUEUE, &queue},
                                     {RTE_FLOW_ACTION_TYPE_END, nullptr}};
  rte_flow_attr attributes{};
  attributes.ingress = 1;
  rte_flow_error error{};
  rte_flow* rule = nullptr;
  if (rte_flow_validate(ethdev_, &attributes, match.items(), actions, &error) == 0)
    rule = rte_flow_create(ethdev_, &attributes, match.items(), actions, &error);
  if (rule == nullptr) {
    steering_.refusal = error.message != nullptr ? error.message : rte_strerror(rte_errno);
    return false;
  }
  made_.push_back(rule);
  return true;
}

void FlowRules::make(const PortConfig& config, std::uint32_t queues) {
  ethdev_ = config.ethdev;
  for (const bool v6 : {false, true}) {
    const auto is_of_family = [v6](const InterfaceAddress& own) { return is_ipv4(own.address) != v6; };
    if (std::none_of(config.addresses.begin(), config.addresses.end(), is_of_family)) continue;
    for (std::uint32_t lane = 0; lane < queues; ++lane)
      if (!make_one(config, v6, lane)) return remove();
  }
  steering_.rules = made_.size();
}

void FlowRules::remove() noexcept {
  for (rte_flow* const rule : made_) {
    rte_flow_error error{};
    rte_flow_destroy(ethdev_, rule, &error);
  }
  made_.clear();
  steering_.rules = 0;
}

}  // namespace sluice::rdma::softroce
