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

#include "dataplane/base/invariant.h"
#include "dataplane/base/setup_error.h"
#include "dataplane/base/small_algorithms.h"
#include "pmd/common/sleep.h"
#include "pmd/softroce/byte_order.h"
#include "pmd/softroce/device.h"
#include "pmd/softroce/flow_rules.h"
#include "pmd/softroce/frame.h"
#include "pmd/softroce/host_frames.h"
#include "pmd/softroce/pools.h"
#include "pmd/softroce/port_refusals.h"

namespace sluice::rdma::softroce {
namespace {

/// Delay before an ethdev is closed, so that a card sends its last frames, or a memif peer, whose process may
/// not be scheduled, reads them.
constexpr std::uint64_t kLastFramesOfCardNs = 20'000'000;
constexpr std::uint64_t kLastFramesOfMemifNs = 200'000'000;

rte_ring* make_ring(const std::string& name, int numa_node) {
  rte_ring* ring = rte_ring_create(name.c_str(), kHandOverDepth, numa_node,
                                   RING_F_SP_ENQ | RING_F_SC_DEQ | RING_F_EXACT_SZ);  // exact capacity
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
                     " has no address. Set addresses = [\"192.0.2.1/24\"] in [device] of the configuration.");
  if (config_.lanes < 1 || config_.lanes > kMaxLanes)
    throw SetupError("softroce port " + config_.name + " supports 1 to " + std::to_string(kMaxLanes) +
                     " reactors.");
  if (config_.max_queue_pairs > kMaxQueuePairs)
    throw SetupError("softroce port " + config_.name + " supports at most " + std::to_string(kMaxQueuePairs) +
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
  // The last frames of the lanes, such as an acknowledgement, are lost if the ethdev is closed before the
  // card or its peer has read them. A process that exits does not wait for that.
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

/// Uses the default rate for virtual ethdevs, because the speed that they report is fictitious.
double EthernetPort::line_rate() const noexcept {
  rte_eth_link link{};
  const bool known = on_card_ && rte_eth_link_get_nowait(config_.ethdev, &link) == 0;
  return CongestionRate::of_link(known ? link.link_speed : RTE_ETH_SPEED_NUM_UNKNOWN);
}

Owned<SoftRoce> EthernetPort::make_device(std::uint32_t lane) {
  return make_owned<SoftDevice>(*this, lane);
}

bool EthernetPort::hand_over(std::uint32_t from, std::uint32_t to, rte_mbuf* buffer) noexcept {
  SLUICE_INVARIANT_DEBUG(from < config_.lanes && from != to, table_index);
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
  SLUICE_INVARIANT_DEBUG(from < config_.lanes && to < config_.lanes, table_index);
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
    SLUICE_INVARIANT_DEBUG(lane + at * shape_.queues < config_.lanes, table_index);
    SLUICE_INVARIANT_DEBUG(left > 0 && left <= kTransmitBurst, credit_balance);
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
  SLUICE_INVARIANT_DEBUG(to_queue_[lane] != nullptr && count <= kTransmitBurst, table_index);
  if (count == 0)
    count = rte_ring_sc_dequeue_burst(to_queue_[lane], reinterpret_cast<void**>(buffers.data()),
                                      kTransmitBurst, nullptr);
  return {buffers.data(), count};
}

bool EthernetPort::drop_from_hand(std::uint32_t lane, std::uint16_t sent) noexcept {
  auto& [count, buffers] = in_hand_[lane];
  SLUICE_INVARIANT_DEBUG(sent <= count, pool_balance);
  std::copy(buffers.begin() + sent, buffers.begin() + count, buffers.begin());
  count -= sent;
  return sent > 0;
}

std::optional<std::uint16_t> first_ethdev() noexcept {
  if (rte_eth_dev_count_avail() == 0) return std::nullopt;
  return rte_eth_find_next(0);
}

Owned<Port> Port::open(const PortConfig& config) {
  return make_owned<EthernetPort>(config);
}

// --- Refusals of TCP and UDP packets

namespace {

constexpr std::uint8_t kProtocolTcp = 6;
constexpr std::uint8_t kProtocolUdp = 17;
constexpr std::byte kHops{64};

constexpr std::size_t kTcpBytes = 20;
constexpr std::uint8_t kFin = 1;
constexpr std::uint8_t kSyn = 2;
constexpr std::uint8_t kReset = 4;
constexpr std::uint8_t kAck = 16;

constexpr std::byte kUnreachable{3};       // RFC 792
constexpr std::byte kPortUnreachable{3};   // code of the message
constexpr std::byte kUnreachable6{1};      // RFC 4443
constexpr std::byte kPortUnreachable6{4};  // code of the message

std::uint8_t tcp_flags(std::span<const std::byte> segment) noexcept {
  return static_cast<std::uint8_t>(segment[13]);
}

/// Returns the length of a segment in sequence numbers, or a negative number if its header is longer than the
/// segment.
std::int64_t sequence_length(std::span<const std::byte> segment) noexcept {
  const auto header = static_cast<std::int64_t>(static_cast<std::uint8_t>(segment[12]) >> 4) * 4;
  const std::uint8_t flags = tcp_flags(segment);
  return static_cast<std::int64_t>(segment.size()) - header + ((flags & kSyn) != 0) + ((flags & kFin) != 0);
}

/// Writes an IP header from the destination of `frame` to its source, for `payload` bytes.
std::size_t write_header(const Frame& frame, std::uint8_t protocol, std::size_t payload,
                         std::byte* out) noexcept {
  if (frame.kind == FrameKind::Ipv6) {
    const std::size_t bytes = write_ipv6(frame.destination, frame.source, payload, out);
    out[6] = std::byte{protocol};
    out[7] = kHops;
    return bytes;
  }
  std::memset(out, 0, kIpv4Bytes);
  out[0] = std::byte{0x45};
  store_be16(out + 2, static_cast<std::uint16_t>(kIpv4Bytes + payload));
  out[6] = std::byte{0x40};  // flag: do not fragment
  out[8] = kHops;
  out[9] = std::byte{protocol};
  std::memcpy(out + 12, frame.destination.bytes.data() + 12, 4);
  std::memcpy(out + 16, frame.source.bytes.data() + 12, 4);
  store_be16(out + 10, internet_checksum({out, kIpv4Bytes}));
  return kIpv4Bytes;
}

/// Returns the sum of the pseudo header of TCP (RFC 9293, section 3.1) or ICMPv6. IPv4 addresses are the last
/// four bytes.
std::uint32_t pseudo_header(const Frame& frame, std::uint8_t protocol, std::size_t bytes) noexcept {
  std::uint32_t sum = protocol + static_cast<std::uint32_t>(bytes);
  for (const PeerAddress* address : {&frame.source, &frame.destination})
    for (std::size_t i = frame.kind == FrameKind::Ipv6 ? 0 : 12; i < 16; i += 2)
      sum += static_cast<std::uint32_t>(address->bytes[i] << 8 | address->bytes[i + 1]);
  return sum;
}

std::size_t write_reset(const Frame& frame, std::byte* out) noexcept {
  const auto segment = frame.transport;
  std::byte* tcp = out + write_header(frame, kProtocolTcp, kTcpBytes, out);
  std::memset(tcp, 0, kTcpBytes);
  std::memcpy(tcp, segment.data() + 2, 2);
  std::memcpy(tcp + 2, segment.data(), 2);
  tcp[12] = std::byte{kTcpBytes / 4 << 4};
  if ((tcp_flags(segment) & kAck) != 0) {
    std::memcpy(tcp + 4, segment.data() + 8, 4);
    tcp[13] = std::byte{kReset};
  } else {
    store_be32(tcp + 8, load_be32(segment.data() + 4) + static_cast<std::uint32_t>(sequence_length(segment)));
    tcp[13] = std::byte{kReset | kAck};
  }
  store_be16(tcp + 16, internet_checksum({tcp, kTcpBytes}, pseudo_header(frame, kProtocolTcp, kTcpBytes)));
  return static_cast<std::size_t>(tcp + kTcpBytes - out);
}

std::size_t write_unreachable(const Frame& frame, std::span<const std::byte> packet,
                              std::byte* out) noexcept {
  const bool v6 = frame.kind == FrameKind::Ipv6;
  // Quotes the IP header and eight bytes of the datagram, or as much as fits for IPv6.
  const std::size_t most = v6 ? kMaxRefusalBytes - kIpv6Bytes - kIcmpBytes : kIpv4Bytes + kUdpBytes;
  const std::size_t quoted = smaller_of(packet.size(), most);
  const std::size_t bytes = kIcmpBytes + quoted;
  std::byte* icmp = out + write_header(frame, v6 ? kProtocolIcmp6 : kProtocolIcmp, bytes, out);
  std::memset(icmp, 0, kIcmpBytes);
  icmp[0] = v6 ? kUnreachable6 : kUnreachable;
  icmp[1] = v6 ? kPortUnreachable6 : kPortUnreachable;
  std::memcpy(icmp + kIcmpBytes, packet.data(), quoted);
  store_be16(icmp + 2,
             internet_checksum({icmp, bytes}, v6 ? pseudo_header(frame, kProtocolIcmp6, bytes) : 0));
  return static_cast<std::size_t>(icmp + bytes - out);
}

/// Returns whether the address can be that of one host.
bool is_host(const PeerAddress& address) noexcept {
  if (!is_ipv4(address)) return address.bytes[0] != 0xff && !same(address, kNoAddress);
  return address.bytes[12] != 0 && address.bytes[12] < 224;
}

}  // namespace

bool PortRefusals::has_answer(const Frame& frame, std::uint64_t now_ns, Statistics& statistics) noexcept {
  if (!enabled_ || !is_host(frame.source)) return false;
  const auto payload = frame.transport;
  const bool tcp = frame.protocol == kProtocolTcp && payload.size() >= kTcpBytes &&
                   (tcp_flags(payload) & kReset) == 0 && sequence_length(payload) >= 0;
  if (!tcp && (frame.protocol != kProtocolUdp || payload.size() < kUdpBytes)) return false;
  if (!within_rate(now_ns)) {
    ++statistics.refusals_limited;
    return false;
  }
  ++statistics.refusals_sent;
  return true;
}

std::size_t PortRefusals::write(const Frame& frame, std::span<const std::byte> packet,
                                std::byte* out) noexcept {
  return frame.protocol == kProtocolTcp ? write_reset(frame, out) : write_unreachable(frame, packet, out);
}

bool PortRefusals::within_rate(std::uint64_t now_ns) noexcept {
  constexpr std::uint64_t kCostNs = 1'000'000'000 / kRefusalsPerSecond;
  const std::uint64_t from = larger_of(paid_until_ns_, now_ns);
  if (from - now_ns > (kRefusalsInARow - 1) * kCostNs) return false;
  paid_until_ns_ = from + kCostNs;
  return true;
}

}  // namespace sluice::rdma::softroce
