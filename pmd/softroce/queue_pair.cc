// SPDX-License-Identifier: Apache-2.0
#include "pmd/softroce/queue_pair.h"

#include <bit>
#include <string>

#include "dataplane/base/invariant.h"
#include "dataplane/base/setup_error.h"
#include "dataplane/base/small_algorithms.h"
#include "pmd/softroce/device.h"
#include "pmd/softroce/memory.h"

namespace sluice::rdma::softroce {
namespace {

constexpr bool valid_path_mtu(std::uint32_t bytes) noexcept {
  return std::has_single_bit(bytes) && bytes >= 256 && bytes <= 4096;
}

std::uint32_t max_inflight_packets(const SoftDevice& device) noexcept {
  return larger_of(device.config().max_inflight_packets, CongestionWindow::kMin);
}

}  // namespace

SoftQueuePair::SoftQueuePair(SoftDevice& device, QueuePairNumber number, const QueuePairLimits& limits)
    : device_(device),
      number_(number),
      send_depth_(limits.send_depth),
      max_sge_(smaller_of<std::uint32_t>(limits.max_send_sge, kMaxPayloadPieces)),
      send_mask_(std::bit_ceil(limits.send_depth) - 1),
      responses_(max_inflight_packets(device) + kReadRequestPackets),
      send_queue_(std::size_t{send_mask_} + 1),
      send_sges_((std::size_t{send_mask_} + 1) * max_sge_),
      recv_queue_(limits.recv_depth) {
  attributes_.initiator_depth = limits.initiator_depth;
  attributes_.rnr_retry = limits.rnr_retry;
}

SoftQueuePair::~SoftQueuePair() {
  static_cast<void>(SLUICE_INVARIANT(state_ != State::ReadyToSend || indices_ordered(), ring_index));
  device_.transmitter().let_go_of_memory();
  device_.memory().unbind_all(*this);
  device_.early_packets().release(early_);
  static_cast<void>(SLUICE_INVARIANT(early_.count == 0, pool_balance));
  device_.remove(*this);
}

bool SoftQueuePair::connect(const RcAttributes& attributes) noexcept {
  if (state_ != State::Init || !valid_path_mtu(attributes.path_mtu) ||
      attributes.path_mtu > device_.max_path_mtu())
    return false;
  if (!SLUICE_INVARIANT(head_ == tail_ && reads_.empty() && early_.count == 0, queue_pair_state))
    return false;
  const std::uint8_t depth = smaller_of(attributes.initiator_depth, attributes_.initiator_depth);
  const std::uint8_t rnr_retry = smaller_of(attributes.rnr_retry, attributes_.rnr_retry);
  attributes_ = attributes;
  attributes_.initiator_depth = depth;
  attributes_.rnr_retry = rnr_retry;
  route_ = device_.route_to(attributes.local, attributes.remote, attributes.remote_link, number_);
  route_.traffic_class = class_of(attributes.traffic_class);
  route_.priority = attributes.service_level & 7;
  headers_ = HeaderTemplate(route_);
  latest_link_ = earlier_link_ = attributes.remote_link;
  remote_qp_ = static_cast<std::uint32_t>(attributes.remote_qp);
  path_mtu_ = attributes.path_mtu;
  path_mtu_bits_ = static_cast<std::uint32_t>(std::countr_zero(path_mtu_));
  static_cast<void>(SLUICE_INVARIANT(1u << path_mtu_bits_ == path_mtu_, buffer_bounds));
  const std::uint32_t max_inflight = max_inflight_packets(device_);
  psns_.open(attributes.send_psn, max_inflight - 1 + kReadRequestPackets);
  expected_psn_ = attributes.receive_psn & kPsnMask;
  window_.open(max_inflight);
  rate_.open(device_.line_rate());
  round_trip_.open(ack_timeout_ns(attributes.ack_timeout));
  answered_ = cut_until_ = psns_.unacknowledged();
  state_ = State::ReadyToSend;
  return true;
}

std::size_t SoftQueuePair::post_send(std::span<const SendWr> wrs) noexcept {
  if (state_ == State::Init) return 0;
  SLUICE_INVARIANT_DEBUG(state_ == State::Error ? head_ == tail_ : indices_ordered(), ring_index);
  std::size_t posted = 0;
  if (state_ == State::Error) {
    for (; posted < wrs.size() && device_.completion_room() > 0; ++posted) {
      add_entry(wrs[posted]);
      complete(entry(head_), WcStatus::WrFlushError);
    }
    return posted;
  }
  while (posted < wrs.size() && tail_ - head_ < send_depth_) add_entry(wrs[posted++]);
  if (posted > 0 && !active) {
    // Transmits the first packets now and the rest from poll(), by round robin with other queue pairs.
    if (transmit()) schedule_transmit();
  }
  return posted;
}

std::size_t SoftQueuePair::post_recv(std::span<const RecvWr> wrs) noexcept {
  std::size_t posted = 0;
  if (state_ == State::Error) {
    for (; posted < wrs.size() && device_.completion_room() > 0; ++posted) {
      ++device_.stats().flushed;
      device_.complete({.wr_id = wrs[posted].wr_id,
                        .qp = number_,
                        .status = WcStatus::WrFlushError,
                        .opcode = WcOpcode::Receive});
    }
    return posted;
  }
  while (posted < wrs.size() && recv_queue_.push_back(wrs[posted])) ++posted;
  SLUICE_INVARIANT_DEBUG(posted == wrs.size() || recv_queue_.full(), ring_index);
  return posted;
}

std::optional<Rkey> SoftQueuePair::bind_window(MemoryWindow window, std::span<std::byte> bytes, Lkey lkey,
                                               AccessFlags access) noexcept {
  if (state_ != State::ReadyToSend) return std::nullopt;
  SLUICE_INVARIANT_DEBUG(bytes.data() != nullptr, buffer_bounds);
  return device_.memory().bind(window, bytes, lkey, access, *this);
}

void SoftQueuePair::to_error() noexcept {
  if (state_ == State::Error) return;
  static_cast<void>(SLUICE_INVARIANT(tail_ - head_ <= send_depth_, ring_index));
  state_ = State::Error;
  deadline_ns_ = retry_at_ns_ = pace_until_ns_ = nak_at_ns_ = 0;
  device_.early_packets().release(early_);
  device_.give_back(responses_until_);
  reads_.clear();
  answer_ = Answer::None;
  while (head_ != tail_) complete(entry(head_), WcStatus::WrFlushError);
  next_ = started_ = head_;
  static_cast<void>(SLUICE_INVARIANT(early_.count == 0 && early_.first == EarlyPackets::kNone, pool_balance));
  while (!recv_queue_.empty()) {
    ++device_.stats().flushed;
    device_.complete({.wr_id = recv_queue_.pop_front().wr_id,
                      .qp = number_,
                      .status = WcStatus::WrFlushError,
                      .opcode = WcOpcode::Receive});
  }
}

/// Completes the oldest work request with `status` and flushes the others.
void SoftQueuePair::fail(WcStatus status) noexcept {
  static_cast<void>(SLUICE_INVARIANT(state_ == State::ReadyToSend, queue_pair_state));
  if (head_ != tail_) complete(entry(head_), status);
  to_error();
}

void SoftQueuePair::on_packet(const Frame& frame, const std::byte* from, const Packet& packet) noexcept {
  if (state_ == State::Init) return;
  if (!same(frame.source, route_.destination) || !same(frame.destination, route_.source)) {
    ++device_.stats().wrong_peer;
    return;
  }
  const bool response = packet.kind.read_response || packet.bth.opcode == Opcode::Acknowledge;
  if (!response) locate_peer(packet, from);
  if (state_ == State::Error) {
    if (!response) on_request_in_error(packet);
    return;
  }
  heard_ = true;
  if ((frame.traffic_class & kEcnMask) == kEcnCongested) notify_congestion();
  if (packet.bth.opcode == Opcode::CongestionNotification) {
    ++device_.stats().cnps_received;
    device_.stats().rate_cuts += rate_.on_notification(device_.now_ns());
  } else if (response) {
    const std::uint32_t before = psns_.unacknowledged();
    on_response(packet);
    if (psns_.unacknowledged() != before) follow(from);
  } else if (packet.bth.opcode != Opcode::DatagramSendOnly) {
    on_request(packet);
  }
}

/// Follows the peer to another link address. A peer without a reply retransmits its oldest request, which
/// need not be the latest one received. Such a retransmission suffices if it comes from the earlier address,
/// so that two damaged or forged packets cannot disconnect the peer.
void SoftQueuePair::locate_peer(const Packet& packet, const std::byte* from) noexcept {
  if (packet.bth.opcode == Opcode::CongestionNotification) return;  // has no PSN of the connection
  if (is_current(packet))
    follow(from);
  else if (same(earlier_link_, from) && is_repeated(packet))
    send_to(earlier_link_);
}

bool SoftQueuePair::is_repeated(const Packet& packet) const noexcept {
  const std::int32_t ago = psn_distance(packet.bth.psn, expected_psn_);
  return ago > 0 && ago <= kRepeatedPackets;
}

/// Reports whether the request is the next one or a retransmission of the last one. An attacker with
/// knowledge of only the addresses and queue pair numbers has to guess the PSN.
bool SoftQueuePair::is_current(const Packet& packet) const noexcept {
  const std::uint32_t packets = packet.bth.opcode == Opcode::ReadRequest ? packets_of(packet.reth.length) : 1;
  return packet.bth.psn == expected_psn_ || psn_add(packet.bth.psn, packets) == expected_psn_;
}

/// Records the link address of a packet of the peer, and sends to it after two packets in a row came from
/// there. Link addresses change with the port of the peer or of a router, but a single packet may be forged
/// or damaged.
void SoftQueuePair::follow(const std::byte* from) noexcept {
  if (same(latest_link_, from))
    send_to(latest_link_);
  else
    latest_link_ = mac_at(from);
}

void SoftQueuePair::send_to(LinkAddress hop) noexcept {
  if (same(route_.destination_mac, std::as_bytes(std::span(hop)).data())) return;
  earlier_link_ = route_.destination_mac;
  route_.destination_mac = hop;
  headers_ = HeaderTemplate(route_);
}

void SoftQueuePair::send_from(const LinkAddress& own) noexcept {
  route_.source_mac = own;
  headers_ = HeaderTemplate(route_);
}

/// Transmits responses before requests, because the peer's progress also releases our resources.
bool SoftQueuePair::transmit() noexcept {
  if (state_ != State::ReadyToSend) return false;
  SLUICE_INVARIANT_DEBUG(indices_ordered() && psns_.ordered(), psn_window);
  const std::uint32_t budget = kPacketsPerTransmit - transmit_responses(kPacketsPerTransmit);
  SLUICE_INVARIANT_DEBUG(budget <= kPacketsPerTransmit, queue_pair_state);
  if (state_ == State::ReadyToSend) transmit_requests(budget);
  if (state_ != State::ReadyToSend) return false;
  if (reads_.empty() && answer_ != Answer::None) return true;
  return pace_until_ns_ == 0 && (!reads_.empty() || may_send_more());
}

bool SoftQueuePair::send_packet(Packet& packet, std::span<const std::span<const std::byte>> pieces,
                                std::uint64_t& read_until) noexcept {
  packet.kind = traits(packet.bth.opcode);
  SLUICE_INVARIANT_DEBUG(state_ != State::Init && pieces.size() <= pieces_.size(), queue_pair_state);
  packet.bth.destination_qp = remote_qp_;
  return device_.transmitter().send(headers_, packet, pieces, read_until);
}

void SoftQueuePair::notify_congestion() noexcept {
  Statistics& stats = device_.stats();
  ++stats.congestion_marks;
  const std::uint64_t now = device_.now_ns();
  if (now - last_notification_ns_ < kNotificationIntervalNs) return;
  static constexpr std::array<std::byte, kCnpPayloadBytes> kReserved{};
  const std::span<const std::byte> payload[] = {kReserved};
  Packet packet;
  packet.bth.opcode = Opcode::CongestionNotification;
  packet.bth.becn = true;
  packet.kind = traits(packet.bth.opcode);
  packet.bth.destination_qp = remote_qp_;
  // The notification has its own traffic class, in which it overtakes the packets that it reports. It is not
  // ECN-capable, because a mark on it would cause another notification.
  Route route = route_;
  route.traffic_class = static_cast<std::uint8_t>(device_.config().cnp_traffic_class & ~kEcnMask);
  route.priority = static_cast<std::uint8_t>(device_.config().cnp_traffic_class >> 5);
  std::uint64_t read_until = 0;  // the payload is copied
  if (!device_.transmitter().send(HeaderTemplate(route), packet, payload, read_until)) return;
  last_notification_ns_ = now;
  ++stats.cnps_sent;
}

void SoftQueuePair::schedule_transmit() noexcept {
  device_.activate(*this);
}

// --- Registered memory of a device

MemoryWindow MemoryTable::allocate_window() {
  if (windows_.size() == kMaxWindows)
    throw SetupError("All " + std::to_string(kMaxWindows) +
                     " memory windows of the softroce device are allocated.");
  windows_.emplace_back();
  return {static_cast<std::uint32_t>(windows_.size() - 1)};
}

std::optional<Rkey> MemoryTable::bind(MemoryWindow window, std::span<std::byte> bytes, Lkey lkey,
                                      AccessFlags access, const QueuePair& owner) noexcept {
  if (window.number >= windows_.size() || windows_[window.number].owner != nullptr ||
      !regions_.covers({bytes.data(), static_cast<std::uint32_t>(bytes.size()), lkey}))
    return std::nullopt;
  auto tag = static_cast<std::uint32_t>(tags_.next()) & ~(kMaxWindows - 1);
  if (tag == 0) tag = kMaxWindows;  // an rkey is never zero
  const auto rkey = static_cast<Rkey>(tag | window.number);
  SLUICE_INVARIANT_DEBUG(number_of(rkey) == window.number, table_index);
  windows_[window.number] = {&owner, rkey, access, bytes};
  return rkey;
}

bool MemoryTable::invalidate(Rkey rkey, const QueuePair& owner) noexcept {
  const std::uint32_t number = number_of(rkey);
  if (number >= windows_.size() || windows_[number].owner != &owner || windows_[number].rkey != rkey)
    return false;
  SLUICE_INVARIANT_DEBUG(windows_[number].bytes.data() != nullptr, table_index);
  windows_[number] = {};
  return true;
}

void MemoryTable::unbind_all(const QueuePair& owner) noexcept {
  for (Window& window : windows_)
    if (window.owner == &owner) window = {};
}

std::byte* MemoryTable::remote(Rkey rkey, std::uint64_t address, std::uint64_t bytes, AccessFlags needed,
                               const QueuePair& owner) const noexcept {
  const std::uint32_t number = number_of(rkey);
  if (number >= windows_.size()) return nullptr;
  const Window& window = windows_[number];
  if (window.owner != &owner || window.rkey != rkey || (window.access & needed) != needed) return nullptr;
  const std::uint64_t base = reinterpret_cast<std::uintptr_t>(window.bytes.data());
  const std::uint64_t room = window.bytes.size();
  SLUICE_INVARIANT_DEBUG(base != 0, table_index);
  if (address < base || address - base > room || bytes > room - (address - base)) return nullptr;
  return window.bytes.data() + (address - base);
}

}  // namespace sluice::rdma::softroce
