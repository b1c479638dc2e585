// SPDX-License-Identifier: Apache-2.0
#include "pmd/softroce/device.h"

#include <rte_cycles.h>
#include <rte_mbuf.h>
#include <rte_prefetch.h>
#include <sys/random.h>

#include <bit>
#include <cstring>
#include <optional>
#include <utility>

#include "dataplane/base/cache_line.h"
#include "dataplane/base/invariant.h"
#include "dataplane/base/setup_error.h"
#include "dataplane/base/small_algorithms.h"
#include "pmd/softroce/byte_order.h"
#include "pmd/softroce/capture.h"
#include "pmd/softroce/port.h"

namespace sluice::rdma::softroce {
namespace {

static_assert(kLaneBits + NumberPermutation::kBits == 24);
static_assert(2 * kMaxQueuePairs <= 1u << NumberPermutation::kBits);
constexpr std::uint32_t kMaxSend = 1u << 20;

constexpr std::uint32_t lane_of(std::uint32_t qpn) noexcept {
  return qpn == kManagementQueuePair ? 0 : qpn & (kMaxLanes - 1);
}
std::uint64_t counter_ns() noexcept {
  static const double ns_per_cycle = 1e9 / static_cast<double>(rte_get_tsc_hz());
  return static_cast<std::uint64_t>(static_cast<double>(rte_rdtsc()) * ns_per_cycle);
}

/// Returns the largest path MTU whose packets fit `link_mtu` with the largest headers.
std::uint16_t path_mtu_for(std::uint32_t link_mtu) noexcept {
  constexpr std::uint32_t kOverhead = kIpv6Bytes + kUdpBytes + kMaxTransportHeaderBytes + kIcrcBytes;
  std::uint16_t mtu = 4096;
  while (mtu > 256 && mtu + kOverhead > link_mtu) mtu /= 2;
  return mtu;
}

std::vector<PeerAddress> plain_addresses(const PortConfig& config) {
  std::vector<PeerAddress> result;
  for (const InterfaceAddress& own : config.addresses) result.push_back(own.address);
  return result;
}

HashKey random_key() {
  HashKey key;
  if (::getrandom(key.data(), key.size(), 0) != static_cast<ssize_t>(key.size()))
    throw SetupError("Cannot get random numbers from the kernel.");
  return key;
}

}  // namespace

SoftDevice::SoftDevice(EthernetPort& port, std::uint32_t lane)
    : port_(port),
      config_(port_.config()),
      lane_(lane),
      name_(config_.name + "." + std::to_string(lane)),
      mac_(port_.link_address()),
      guid_(eui64_of(mac_)),
      max_path_mtu_(path_mtu_for(port_.link().facts().mtu)),
      line_rate_(port_.line_rate()),
      addresses_(plain_addresses(config_)),
      neighbours_(config_, mac_, port_.neighbours(), now_ns_),
      transmitter_(name_, port_, lane, port_.frame_bytes(), port_.numa_node(), statistics_),
      early_packets_(max_path_mtu_),
      clock_ns_(config_.clock_ns != nullptr ? config_.clock_ns : counter_ns),
      now_ns_(clock_ns_()),
      queue_pairs_(std::bit_ceil(2 * std::size_t{config_.max_queue_pairs})),
      index_mask_(queue_pairs_.size() - 1),
      numbers_(random_key()),
      active_(config_.max_queue_pairs),
      announcer_(config_, mac_, now_ns_) {
  neighbours_.refusals().enable(!port_.link().facts().kernel_serves && refuses_ports());
}

SoftDevice::~SoftDevice() {
  static_cast<void>(SLUICE_INVARIANT(queue_pair_count_ == 0 && depth_ == 0, pool_balance));
  static_cast<void>(SLUICE_INVARIANT(active_.empty(), list_membership));
  static_cast<void>(SLUICE_INVARIANT(early_packets_.room() == kEarlyPackets, pool_balance));
  transmitter_.flush();
}

DeviceLimits SoftDevice::limits() const noexcept {
  return {.max_queue_pairs = config_.max_queue_pairs,
          .max_send_sge = kMaxPayloadPieces,
          .max_read_sge = kMaxPayloadPieces,
          .max_windows = kMaxWindows,
          .max_message_bytes = kMaxSendMessageBytes,
          .max_send_bytes = kMaxSend,
          .immediate_data = true,
          .remote_invalidation = true};
}

MemoryRegion SoftDevice::allocate_memory(std::size_t bytes) {
  // A card's address translation has few entries and requires the pages from the start.
  const MemoryRegion region = transmitter_.memory() == PacketMemory::UntilFreed
                                  ? memory_.allocate_for_device(bytes, port_.numa_node())
                                  : memory_.allocate(bytes);
  if (!port_.reach(region.bytes)) transmitter_.copy_all();
  return region;
}

MemoryRegion SoftDevice::register_memory(std::span<std::byte> bytes) {
  if (!port_.reach(bytes)) transmitter_.copy_all();
  return memory_.add(bytes);
}

Owned<QueuePair> SoftDevice::create_queue_pair(const QueuePairLimits& limits) {
  if (queue_pair_count_ == config_.max_queue_pairs)
    throw SetupError("All " + std::to_string(config_.max_queue_pairs) + " queue pairs of " + name_ +
                     " are in use.");
  const std::uint32_t number = free_number();
  static_cast<void>(SLUICE_INVARIANT(queue_pairs_[index_of(number)] == nullptr, table_index));
  auto qp = make_owned<SoftQueuePair>(*this, static_cast<QueuePairNumber>(number), limits);
  queue_pairs_[index_of(number)] = qp.get();
  ++queue_pair_count_;
  depth_ += qp->depth();
  if (completions_.capacity() < 2 * depth_) completions_.grow(4 * depth_);
  static_cast<void>(SLUICE_INVARIANT(queue_pair_count_ <= config_.max_queue_pairs, pool_balance));
  return qp;
}

/// Returns a number that cannot be guessed without observing it on the link and that was not used for as long
/// as possible, so that late packets of a destroyed queue pair match no queue pair. At least half of the
/// table is free.
std::uint32_t SoftDevice::free_number() noexcept {
  for (;;) {
    const std::uint32_t number = numbers_.next() << kLaneBits | lane_;
    if (number > kManagementQueuePair && queue_pairs_[index_of(number)] == nullptr) return number;
  }
}

void SoftDevice::remove(SoftQueuePair& qp) noexcept {
  const std::size_t index = index_of(static_cast<std::uint32_t>(qp.number()));
  if (queue_pairs_[index] != &qp) return;
  static_cast<void>(SLUICE_INVARIANT(queue_pair_count_ > 0 && depth_ >= qp.depth(), pool_balance));
  queue_pairs_[index] = nullptr;
  --queue_pair_count_;
  depth_ -= qp.depth();
  active_.erase_if([&](const SoftQueuePair* each) { return each == &qp; });
  static_cast<void>(SLUICE_INVARIANT(active_.size() <= queue_pair_count_, list_membership));
  timers_.cancel(qp.timer);
  completions_.erase_if([&](const WorkCompletion& each) { return each.qp == qp.number(); });
  gate_.recount();
}

Route SoftDevice::route_to(const PeerAddress& local, const PeerAddress& remote, const LinkAddress& link,
                           QueuePairNumber qp) const noexcept {
  Route route;
  route.source_mac = mac_;
  route.destination_mac = link;
  route.vlan = config_.vlan;
  route.priority = config_.service_level;
  route.traffic_class = class_of(config_.traffic_class);
  route.source = local;
  route.destination = remote;
  // Each queue pair has its own source port, so that ECMP and RSS distribute the queue pairs (A17.3.1.1).
  route.udp_source_port =
      static_cast<std::uint16_t>(0xC000 | (static_cast<std::uint32_t>(qp) * 0x9E37u >> 8 & 0x3FFF));
  return route;
}

std::size_t SoftDevice::read_statistics(std::span<std::uint64_t> values) const noexcept {
  std::size_t count = 0;
  const auto add = [&](std::uint64_t value) {
    if (count < values.size()) values[count++] = value;
  };
#define SLUICE_STATISTIC_ADD(name, help) add(statistics_.name);
  SLUICE_SOFTROCE_STATISTICS(SLUICE_STATISTIC_ADD)
#undef SLUICE_STATISTIC_ADD
  return count;
}

// --- Polling

std::size_t SoftDevice::poll(std::span<WorkCompletion> completions) noexcept {
  SLUICE_INVARIANT_DEBUG(owner_.is_caller(), object_owner);
  now_ns_ = clock_ns_();
  const std::uint64_t sent = statistics_.packets_sent;
  if (port_.link().has_changed(lane_)) [[unlikely]]
    on_link_change();
  moved_ = transmitter_.flush();  // packets of post_send() since the last poll
  if (lane_ == 0 && announcer_.due(now_ns_)) announce();
  if (completions_.size() <= completions_.capacity() / 2) {
    receive();
    run_timers();
    transmit_active();
  }
  moved_ |= transmitter_.take_turns() || statistics_.packets_sent != sent;
  if (!gate_.closed()) [[likely]]
    return completions_.pop_front(completions);
  const std::size_t taken =
      completions_.pop_front(completions.first(smaller_of(completions.size(), completions_let_go())));
  gate_.take(taken);
  return taken;
}

/// Returns the number of completions that may be delivered because the memory that they return is no longer
/// read.
std::size_t SoftDevice::completions_let_go() noexcept {
  if (transmitter_.memory() == PacketMemory::UntilFreed) {
    port_.free_sent(lane_);
    const std::size_t free = gate_.free(completions_.size(), [this](std::uint64_t read_until) noexcept {
      return transmitter_.lets_go_of(read_until);
    });
    statistics_.memory_waits += free < completions_.size();
    SLUICE_INVARIANT_DEBUG(free <= completions_.size(), ring_index);
    return free;
  }
  transmitter_.let_go_of_memory();
  gate_.open();
  return completions_.size();
}

void SoftDevice::receive() noexcept {
  rte_mbuf* buffers[kReceiveBurst];
  const auto take = [&](std::uint16_t count) {
    SLUICE_INVARIANT_DEBUG(count <= kReceiveBurst, buffer_bounds);
    moved_ |= count > 0;
    for (std::uint16_t i = 0; i < count; ++i) {
      rte_prefetch0(rte_pktmbuf_mtod(buffers[i], void*));
      rte_prefetch0(rte_pktmbuf_mtod_offset(buffers[i], void*, kCacheLine));
    }
    unsigned kept = 0;
    for (std::uint16_t i = 0; i < count; ++i) {
      rte_mbuf* buffer = buffers[i];
      if (buffer->nb_segs > 1 && rte_pktmbuf_linearize(buffer) != 0)
        ++statistics_.frames_malformed;
      else if (const std::span bytes{rte_pktmbuf_mtod(buffer, const std::byte*), buffer->data_len};
               !on_expected(bytes) && on_frame(bytes, buffer))
        continue;
      buffers[kept++] = buffer;
    }
    rte_pktmbuf_free_bulk(buffers, kept);
  };
  const std::uint16_t arrived = port_.receive_from_queue(lane_, buffers, kReceiveBurst);
  // Captured here and not in take(), because the other lane has captured the packets that it hands over.
  if (Capture* capture = port_.capture()) this->capture(*capture, {buffers, arrived});
  take(arrived);
  for (std::uint32_t from = 0; from < config_.lanes; ++from)
    take(port_.receive_from_lane(from, lane_, buffers, kReceiveBurst));
}

void SoftDevice::capture(Capture& capture, std::span<rte_mbuf* const> arrived) noexcept {
  if (const std::uint32_t number = capture.queue_pair(); number != 0)
    if (const SoftQueuePair* qp = find(number))
      capture.set_flow(lane_,
                       {.queue_pair = number, .peer_queue_pair = qp->remote_qp(), .peer = qp->remote()});
  capture.add(lane_, arrived, Way::In);
}

SoftQueuePair* SoftDevice::find(std::uint32_t number) const noexcept {
  SoftQueuePair* qp = queue_pairs_[index_of(number)];
  return qp != nullptr && static_cast<std::uint32_t>(qp->number()) == number ? qp : nullptr;
}

bool SoftDevice::hand_over(std::uint32_t lane, rte_mbuf* buffer) noexcept {
  ++(port_.hand_over(lane_, lane, buffer) ? statistics_.handed_over : statistics_.hand_over_drops);
  return true;
}

/// Handles a packet whose headers its queue pair expects. Returns false, with no effect, for any other frame.
bool SoftDevice::on_expected(std::span<const std::byte> bytes) noexcept {
  return with_layout(bytes, [&]<const HeaderLayout & kLayout>() noexcept {
    const std::byte* const bth = bytes.data() + kLayout.transport_at;
    SoftQueuePair* const qp = queue_pairs_[index_of(load_be32(bth + 4) & kPsnMask)];
    if (qp == nullptr || !qp->expected().match<kLayout>(bytes.data())) return false;
    const std::size_t transport_bytes = transport_bytes_of<kLayout>(bytes);
    if (transport_bytes == 0 || !decode_expected(bth, transport_bytes, expected_)) return false;
    constexpr std::size_t kNetworkBytes = kLayout.transport_at - kLayout.network_at;
    std::uint32_t crc;
    std::memcpy(&crc, bth + transport_bytes, kIcrcBytes);
    if (icrc_start(bth - kNetworkBytes, kNetworkBytes, transport_bytes) != crc) return false;
    ++statistics_.packets_received;
    ++statistics_.packets_expected;
    statistics_.bytes_received += bytes.size();
    qp->on_expected(expected_);
    return true;
  });
}

bool SoftDevice::on_frame(std::span<const std::byte> bytes, rte_mbuf* buffer) noexcept {
  const Frame frame = parse(bytes);
  if (frame.kind == FrameKind::Roce) {
    const std::uint32_t owner = lane_of(load_be32(frame.transport.data() + 4) & 0xFFFFFF);
    if (owner != lane_) return hand_over(owner, buffer);
    on_roce(frame, bytes);
  } else if (frame.kind == FrameKind::Malformed) {
    ++statistics_.frames_malformed;
  } else if (lane_ != 0) {  // lane 0 has the neighbour tables
    return hand_over(0, buffer);
  } else {
    on_other(frame, bytes);
  }
  return false;
}

void SoftDevice::on_roce(const Frame& frame, std::span<const std::byte> bytes) noexcept {
  // Reliable connections have no multicast groups, and frames that a switch floods are for other hosts (RFC
  // 1122, section 3.3.6).
  if (!same(mac_, bytes.data())) {
    ++statistics_.frames_misaddressed;
    return;
  }
  if (frame.vlan != vlan_of(config_.vlan) || !neighbours_.is_own(frame.destination)) {
    ++statistics_.frames_foreign;
    return;
  }
  if (!icrc_correct(frame, bytes)) {
    ++statistics_.icrc_errors;
    return;
  }
  const auto packet = decode(frame.transport);
  if (!packet) {
    ++statistics_.frames_malformed;
    return;
  }
  ++statistics_.packets_received;
  statistics_.bytes_received += bytes.size();
  // Full and limited members of the default partition differ in the top bit (10.9.1.1).
  if ((packet->bth.partition_key & 0x7FFF) != 0x7FFF) {
    ++statistics_.partition_errors;
    return;
  }
  const std::uint32_t number = packet->bth.destination_qp;
  if (number == kManagementQueuePair)
    return on_datagram(frame, mac_at(bytes.data() + sizeof(MacAddress)), *packet);
  SoftQueuePair* qp = find(number);
  if (qp == nullptr) {
    ++statistics_.unknown_queue_pair;
    return;
  }
  qp->on_packet(frame, bytes, *packet);
}

void SoftDevice::on_other(const Frame& frame, std::span<const std::byte> bytes) noexcept {
  rte_mbuf* answer = transmitter_.frame_buffer();
  std::size_t length = 0;
  const std::uint64_t conflicts = statistics_.address_conflicts;
  const std::size_t most = bytes.size() - frame.network_offset + kEthernetBytes + kVlanBytes;
  if (answer != nullptr && most <= answer->buf_len - std::size_t{answer->data_off})
    length = neighbours_.on_frame(frame, bytes, rte_pktmbuf_mtod(answer, std::byte*), statistics_);
  SLUICE_INVARIANT_DEBUG(length == 0 || length <= rte_pktmbuf_tailroom(answer), buffer_bounds);
  if (length > 0) {
    answer->data_len = static_cast<std::uint16_t>(length);
    answer->pkt_len = answer->data_len;
    transmitter_.send_frame(answer);
  } else {
    rte_pktmbuf_free(answer);
    ++statistics_.frames_ignored;
  }
  if (statistics_.address_conflicts != conflicts) announcer_.defend(now_ns_);
  if (unresolved_.waiting) send_resolved();
}

// --- Link state

void SoftDevice::handle_events() noexcept {
  if (lane_ == 0) port_.handle_events();
}

/// Returns whether a buffer has room for the longest refusal.
bool SoftDevice::refuses_ports() const noexcept {
  return port_.frame_bytes() >= kMaxRefusalBytes + kEthernetBytes + kVlanBytes;
}

Condition SoftDevice::condition() const noexcept {
  return port_.link().condition();
}

/// Applies a change of the port's link. When the link is up again, its switch may expect this host on another
/// port, so the addresses are announced (RFC 5227, section 2.3).
void SoftDevice::on_link_change() noexcept {
  LinkFacts facts;
  const std::optional<std::uint32_t> sequence = port_.link().read(facts);
  if (!sequence) return;
  if (facts.use != EthdevUse::Open) transmitter_.drop_staged();
  static_cast<void>(
      SLUICE_INVARIANT(facts.use == EthdevUse::Open || transmitter_.room() == kTransmitBurst, pool_balance));
  port_.link().confirm(lane_, facts.use, *sequence);
  if (facts.mac != mac_) send_from(facts.mac);
  max_path_mtu_ = path_mtu_for(facts.mtu);
  if (lane_ != 0) return;
  neighbours_.refusals().enable(!facts.kernel_serves && refuses_ports());
  statistics_.port_down = facts.downs;
  statistics_.port_up = facts.ups;
  statistics_.port_reopened = facts.reopened;
  statistics_.mac_changes = facts.mac_changes;
  statistics_.mtu_changes = facts.mtu_changes;
  if (std::exchange(announced_, facts.announcements) != facts.announcements) announcer_.again(now_ns_);
}

/// Changes the source address of the lane and of all its queue pairs.
void SoftDevice::send_from(const MacAddress& mac) noexcept {
  mac_ = mac;
  for (SoftQueuePair* const qp : queue_pairs_)
    if (qp != nullptr) qp->send_from(mac);
}

/// Sends the next announcement, one frame per call.
void SoftDevice::announce() noexcept {
  rte_mbuf* frame = transmitter_.frame_buffer();
  if (frame == nullptr) return;
  const std::size_t length = announcer_.next(now_ns_, rte_pktmbuf_mtod(frame, std::byte*));
  if (length == 0) return rte_pktmbuf_free(frame);
  static_cast<void>(SLUICE_INVARIANT(length <= rte_pktmbuf_tailroom(frame), buffer_bounds));
  frame->data_len = static_cast<std::uint16_t>(length);
  frame->pkt_len = frame->data_len;
  transmitter_.send_frame(frame);
}

void SoftDevice::transmit_active() noexcept {
  for (std::size_t i = smaller_of(active_.size(), kTransmitsPerPoll); i > 0; --i) {
    if (transmitter_.room() == 0) transmitter_.flush();
    if (transmitter_.room() == 0) return;
    SoftQueuePair* qp = active_.pop_front();
    SLUICE_INVARIANT_DEBUG(qp->active, list_membership);
    qp->active = false;
    if (qp->transmit()) activate(*qp);
  }
}

void SoftDevice::activate(SoftQueuePair& qp) noexcept {
  if (qp.active) return;
  SLUICE_INVARIANT_DEBUG(find(static_cast<std::uint32_t>(qp.number())) == &qp, table_index);
  qp.active = true;
  static_cast<void>(SLUICE_INVARIANT(active_.push_back(&qp), ring_index));
}

void SoftDevice::watch(SoftQueuePair& qp) noexcept {
  SLUICE_INVARIANT_DEBUG(find(static_cast<std::uint32_t>(qp.number())) == &qp, table_index);
  SLUICE_INVARIANT_DEBUG(qp.deadline_ns() != 0, timer_state);
  timers_.schedule_no_later(qp.timer, qp.deadline_ns());
}

void SoftDevice::run_timers() noexcept {
  std::uint32_t steps = kTimerSteps;
  while (auto* timer = timers_.take_due(now_ns_, steps)) {
    SoftQueuePair& qp = *timer->owner;  // the deadline may have been postponed or removed
    SLUICE_INVARIANT_DEBUG(find(static_cast<std::uint32_t>(qp.number())) == &qp, timer_state);
    if (now_ns_ >= qp.deadline_ns())
      qp.on_timer(now_ns_);
    else
      watch(qp);
  }
}

// --- Management datagrams

void SoftDevice::on_datagram(const Frame& frame, const LinkAddress& from, const Packet& packet) noexcept {
  if (packet.bth.opcode != Opcode::DatagramSendOnly || packet.deth.queue_key != kManagementQueueKey) {
    ++statistics_.queue_key_errors;
    return;
  }
  ++statistics_.datagrams_received;
  if (packet.payload.size() > Datagram::kMaxBytes || !datagrams_.has_room_for(frame.source)) {
    ++statistics_.datagrams_dropped;
    return;
  }
  Datagram datagram;
  datagram.local = frame.destination;
  datagram.remote = frame.source;
  datagram.remote_link = from;
  datagram.remote_qp = packet.deth.source_qp;
  datagram.bytes = static_cast<std::uint16_t>(packet.payload.size());
  std::memcpy(datagram.data.data(), packet.payload.data(), packet.payload.size());
  datagrams_.add(datagram);
}

std::size_t SoftDevice::receive_datagrams(std::span<Datagram> datagrams) noexcept {
  return datagrams_.take(datagrams);
}

bool SoftDevice::send_datagram(const Datagram& datagram) noexcept {
  if (datagram.bytes > Datagram::kMaxBytes || !neighbours_.is_own(datagram.local)) return false;
  if (datagram.remote_link != LinkAddress{}) {
    send_to(datagram, datagram.remote_link);
  } else if (const auto hop = neighbours_.find(datagram.remote)) {
    if (hop->stale) ask_for(datagram.remote);
    send_to(datagram, hop->link);
  } else {
    if (unresolved_.waiting) ++statistics_.datagrams_dropped;
    unresolved_ = {true, datagram};
    return ask_for(datagram.remote);
  }
  return true;
}

bool SoftDevice::ask_for(const PeerAddress& remote) noexcept {
  rte_mbuf* question = transmitter_.frame_buffer();
  if (question == nullptr) return false;
  const std::size_t length = neighbours_.ask(remote, rte_pktmbuf_mtod(question, std::byte*));
  static_cast<void>(SLUICE_INVARIANT(length <= rte_pktmbuf_tailroom(question), buffer_bounds));
  question->data_len = static_cast<std::uint16_t>(length);
  question->pkt_len = question->data_len;
  if (length > 0)
    transmitter_.send_frame(question);
  else
    rte_pktmbuf_free(question);
  return true;
}

LinkAddress SoftDevice::next_hop(const PeerAddress& remote, const LinkAddress& link) noexcept {
  const auto hop = neighbours_.find(remote);
  const LinkAddress found = hop ? hop->link : link;
  statistics_.hops_changed += found != link;
  if (now_ns_ - asked_ns_ >= kAskAgainNs) {
    asked_ns_ = now_ns_;
    ask_for(remote);
  }
  return found;
}

void SoftDevice::send_resolved() noexcept {
  static_cast<void>(SLUICE_INVARIANT(unresolved_.waiting, connection_state));
  const auto hop = neighbours_.find(unresolved_.datagram.remote);
  if (!hop) return;
  unresolved_.waiting = false;
  send_to(unresolved_.datagram, hop->link);
}

void SoftDevice::send_to(const Datagram& datagram, const LinkAddress& link) noexcept {
  if (!SLUICE_INVARIANT(datagram.bytes <= Datagram::kMaxBytes, buffer_bounds)) return;
  const Route route =
      route_to(datagram.local, datagram.remote, link, static_cast<QueuePairNumber>(kManagementQueuePair));
  Packet packet;
  packet.bth.opcode = Opcode::DatagramSendOnly;
  packet.bth.destination_qp = datagram.remote_qp;
  packet.bth.psn = datagram_psn_ = psn_add(datagram_psn_, 1);
  packet.deth = {kManagementQueueKey, kManagementQueuePair};
  const std::span<const std::byte> payload{datagram.data.data(), datagram.bytes};
  std::uint64_t read_until = 0;  // the payload is copied
  ++(transmitter_.send(HeaderTemplate(route), encoded(packet, payload.size()), payload, read_until)
         ? statistics_.datagrams_sent
         : statistics_.datagrams_dropped);
}

}  // namespace sluice::rdma::softroce
