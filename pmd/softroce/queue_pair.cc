// SPDX-License-Identifier: Apache-2.0
//
// This file also contains the path of a queue pair and the registered memory of a device.
#include "pmd/softroce/queue_pair.h"

#include <array>
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

}  // namespace

SoftQueuePair::SoftQueuePair(SoftDevice& device, QueuePairNumber number, const QueuePairLimits& limits)
    : device_(device),
      number_(number),
      initiator_depth_(limits.initiator_depth),
      rnr_retry_(limits.rnr_retry),
      path_(device),
      requester_(device, path_, *this, limits),
      responder_(device, path_, *this, limits.recv_depth) {}

SoftQueuePair::~SoftQueuePair() {
  static_cast<void>(SLUICE_INVARIANT(state_ != State::ReadyToSend || requester_.ordered(), ring_index));
  device_.transmitter().let_go_of_memory();
  device_.memory().unbind_all(*this);
  device_.remove(*this);
}

bool SoftQueuePair::connect(const RcAttributes& attributes) noexcept {
  if (state_ != State::Init || !valid_path_mtu(attributes.path_mtu) ||
      attributes.path_mtu > device_.max_path_mtu())
    return false;
  if (!SLUICE_INVARIANT(requester_.queue().empty() && responder_.idle(), queue_pair_state)) return false;
  RcAttributes limited = attributes;
  limited.initiator_depth = smaller_of(attributes.initiator_depth, initiator_depth_);
  limited.rnr_retry = smaller_of(attributes.rnr_retry, rnr_retry_);
  path_.open(limited, number_);
  requester_.open(limited);
  responder_.open(limited.receive_psn, limited.responder_resources);
  state_ = State::ReadyToSend;
  return true;
}

std::size_t SoftQueuePair::post_send(std::span<const SendWr> wrs) noexcept {
  if (state_ == State::Init) return 0;
  std::size_t posted = 0;
  if (state_ == State::Error) {
    while (posted < wrs.size() && device_.completion_room() > 0) requester_.add_flushed(wrs[posted++]);
    return posted;
  }
  SLUICE_INVARIANT_DEBUG(requester_.ordered(), ring_index);
  const std::size_t count = smaller_of(wrs.size(), send_room());
  // Transmits the first packets now and the rest from poll(), by round robin with other queue pairs.
  if (!active) {
    posted = requester_.send_at_once(wrs.first(smaller_of<std::size_t>(count, kPacketsPerTransmit)));
    if (posted > 0) set_deadline();
  }
  if (posted == count) return posted;
  const bool had_turn = posted == kPacketsPerTransmit;
  while (posted < count) requester_.add(wrs[posted++]);
  if (!active && (had_turn || transmit())) device_.activate(*this);
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
  while (posted < wrs.size() && responder_.add_receive(wrs[posted])) ++posted;
  SLUICE_INVARIANT_DEBUG(posted <= wrs.size(), ring_index);
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
  state_ = State::Error;
  deadline_ns_ = 0;
  path_.expect_nothing();
  path_.end_pacing();
  responder_.end_responses();
  requester_.flush();
  responder_.flush_receives();
  static_cast<void>(SLUICE_INVARIANT(requester_.queue().empty() && responder_.idle(), queue_pair_state));
  static_cast<void>(
      SLUICE_INVARIANT(requester_.retry_at_ns() == 0 && responder_.nak_at_ns() == 0, timer_state));
}

void SoftQueuePair::on_expected(const Packet& packet) noexcept {
  if (!SLUICE_INVARIANT(state_ == State::ReadyToSend && packet.kind.of_connection, queue_pair_state)) return;
  heard_ = true;
  if (packet.kind.response) return apply(requester_.on_response(packet));
  if (!responder_.on_expected(packet)) return to_error();
  if (responder_.nak_at_ns() != 0) set_deadline();  // only a gap has a time
  if (!active && (responder_.has_answer() || (responder_.has_responses() && path_.paced_until_ns() == 0)))
    device_.activate(*this);
}

void SoftQueuePair::on_packet(const Frame& frame, std::span<const std::byte> bytes,
                              const Packet& packet) noexcept {
  if (state_ == State::Init) return;
  if (!path_.connects(frame)) {
    ++device_.stats().wrong_peer;
    return;
  }
  const std::byte* const from = bytes.data() + sizeof(MacAddress);
  const bool response = packet.kind.response;
  if (!response) locate_peer(packet, from);
  if (state_ == State::Error) {
    if (!response) responder_.on_request_in_error(packet);
    return;
  }
  heard_ = true;
  if ((frame.traffic_class & kEcnMask) == kEcnCongested) path_.notify_congestion();
  if (packet.bth.opcode == Opcode::CongestionNotification) {
    ++device_.stats().cnps_received;
    device_.stats().rate_cuts += path_.rate().on_notification(device_.now_ns());
  } else if (response) {
    apply(on_response(packet, from));
  } else if (packet.bth.opcode != Opcode::DatagramSendOnly) {
    apply(responder_.on_request(packet));
  }
  if (state_ == State::ReadyToSend && packet.kind.of_connection) path_.expect(frame, bytes);
}

bool SoftQueuePair::on_response(const Packet& packet, const std::byte* from) noexcept {
  const std::uint32_t before = requester_.unacknowledged();
  const bool goes_on = requester_.on_response(packet);
  if (requester_.unacknowledged() != before) path_.follow(from);
  return goes_on;
}

/// Follows the peer to another link address. A peer without a reply retransmits its oldest request, which
/// need not be the latest one received. Such a retransmission suffices if it comes from the earlier address,
/// so that two damaged or forged packets cannot disconnect the peer.
void SoftQueuePair::locate_peer(const Packet& packet, const std::byte* from) noexcept {
  if (packet.bth.opcode == Opcode::CongestionNotification) return;  // has no PSN of the connection
  if (responder_.expects(packet))
    path_.follow(from);
  else if (responder_.is_repeated(packet))
    path_.follow_retransmission(from);
}

/// Transmits responses before requests, because the peer's progress also releases our resources.
bool SoftQueuePair::transmit() noexcept {
  if (state_ != State::ReadyToSend) return false;
  SLUICE_INVARIANT_DEBUG(requester_.ordered(), psn_window);
  std::uint32_t budget = kPacketsPerTransmit;
  if (!responder_.transmit(budget) || !requester_.transmit(budget, responder_.read_until())) {
    to_error();
    return false;
  }
  SLUICE_INVARIANT_DEBUG(budget <= kPacketsPerTransmit, queue_pair_state);
  set_deadline();
  return has_work();
}

/// Returns whether a packet may be sent now, as far as the queue pair knows.
bool SoftQueuePair::has_work() const noexcept {
  if (responder_.has_answer()) return true;
  return path_.paced_until_ns() == 0 && (responder_.has_responses() || requester_.may_send_more());
}

/// Enters Error if a packet or a timer has ended the connection. Otherwise sets the timer, and schedules the
/// transmission of packets that may be sent.
void SoftQueuePair::apply(bool goes_on) noexcept {
  SLUICE_INVARIANT_DEBUG(state_ == State::ReadyToSend, queue_pair_state);
  if (!goes_on) return to_error();
  set_deadline();
  if (!active && has_work()) device_.activate(*this);
}

void SoftQueuePair::set_deadline() noexcept {
  SLUICE_INVARIANT_DEBUG(state_ == State::ReadyToSend, timer_state);
  std::uint64_t earliest = 0;
  for (const std::uint64_t at : {requester_.retry_at_ns(), path_.paced_until_ns(), responder_.nak_at_ns()})
    if (at != 0 && (earliest == 0 || at < earliest)) earliest = at;
  if (earliest == deadline_ns_) return;
  deadline_ns_ = earliest;
  if (deadline_ns_ != 0) device_.watch(*this);
}

void SoftQueuePair::on_timer(std::uint64_t now_ns) noexcept {
  deadline_ns_ = 0;
  if (state_ != State::ReadyToSend) return;
  const auto is_due = [now_ns](std::uint64_t at_ns) { return at_ns != 0 && now_ns >= at_ns; };
  if (is_due(path_.paced_until_ns())) {
    path_.end_pacing();
    requester_.on_rate_timer();
  }
  if (is_due(responder_.nak_at_ns())) responder_.on_gap_timer();
  apply(!is_due(requester_.retry_at_ns()) || requester_.on_retry_timer(now_ns));
}

// --- The path to the peer

PeerPath::PeerPath(SoftDevice& device) noexcept : device_(device), transmitter_(device.transmitter()) {}

void PeerPath::open(const RcAttributes& attributes, QueuePairNumber number) noexcept {
  route_ = device_.route_to(attributes.local, attributes.remote, attributes.remote_link, number);
  route_.traffic_class = class_of(attributes.traffic_class);
  route_.priority = attributes.service_level & 7;
  static_cast<void>(SLUICE_INVARIANT(paced_until_ns_ == 0, timer_state));
  headers_ = HeaderTemplate(route_);
  latest_link_ = earlier_link_ = attributes.remote_link;
  expect_nothing();
  remote_ = attributes.remote;
  remote_qp_ = static_cast<std::uint32_t>(attributes.remote_qp);
  mtu_ = attributes.path_mtu;
  mtu_bits_ = static_cast<std::uint32_t>(std::countr_zero(mtu_));
  static_cast<void>(SLUICE_INVARIANT(1u << mtu_bits_ == mtu_, buffer_bounds));
  rate_.open(device_.line_rate());
  round_trip_.open(ack_timeout_ns(attributes.ack_timeout));
}

void PeerPath::follow(const std::byte* from) noexcept {
  if (same(latest_link_, from)) return send_to(latest_link_);
  latest_link_ = mac_at(from);
  expect_nothing();
}

void PeerPath::follow_retransmission(const std::byte* from) noexcept {
  if (same(earlier_link_, from)) send_to(earlier_link_);
}

void PeerPath::send_to(LinkAddress hop) noexcept {
  if (same(route_.destination_mac, std::as_bytes(std::span(hop)).data())) return;
  earlier_link_ = route_.destination_mac;
  route_.destination_mac = hop;
  expect_nothing();
  headers_ = HeaderTemplate(route_);
}

void PeerPath::send_from(const LinkAddress& own) noexcept {
  route_.source_mac = own;
  headers_ = HeaderTemplate(route_);
  expect_nothing();
}

void PeerPath::expect(const Frame& frame, std::span<const std::byte> bytes) noexcept {
  const std::byte* const from = bytes.data() + sizeof(MacAddress);
  if ((frame.traffic_class & kEcnMask) == kEcnCongested || !same(latest_link_, from) ||
      !same(route_.destination_mac, from) || !device_.config().expect_headers)
    return;
  expected_.learn(bytes);
}

void PeerPath::try_next_hop(std::uint32_t retries) noexcept {
  const LinkAddress hop = device_.next_hop(remote_, route_.destination_mac);
  const bool before = retries % kRetriesOfHop == 0 && hop == route_.destination_mac;
  send_to(before ? earlier_link_ : hop);
}

void PeerPath::charge_limited(std::uint32_t bytes) noexcept {
  rate_.charge(bytes, device_.now_ns());
}

bool PeerPath::wait_while_limited() noexcept {
  paced_until_ns_ = rate_.wait_until(device_.now_ns());
  return paced_until_ns_ != 0;
}

void PeerPath::notify_congestion() noexcept {
  Statistics& stats = device_.stats();
  ++stats.congestion_marks;
  const std::uint64_t now = device_.now_ns();
  if (now - last_notification_ns_ < kNotificationIntervalNs) return;
  static constexpr std::array<std::byte, kCnpPayloadBytes> kReserved{};
  Packet packet;
  packet.bth.opcode = Opcode::CongestionNotification;
  packet.bth.becn = true;
  packet.bth.destination_qp = remote_qp_;
  // The notification has its own traffic class, in which it overtakes the packets that it reports. It is not
  // ECN-capable, because a mark on it would cause another notification.
  Route route = route_;
  route.traffic_class = static_cast<std::uint8_t>(device_.config().cnp_traffic_class & ~kEcnMask);
  route.priority = static_cast<std::uint8_t>(device_.config().cnp_traffic_class >> 5);
  std::uint64_t read_until = 0;  // the payload is copied
  if (!transmitter_.send(HeaderTemplate(route), encoded(packet, kReserved.size()), kReserved, read_until))
    return;
  last_notification_ns_ = now;
  ++stats.cnps_sent;
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
