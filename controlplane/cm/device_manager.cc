// SPDX-License-Identifier: Apache-2.0
#include "controlplane/cm/device_manager.h"

#include <algorithm>
#include <array>

#include "pmd/device.h"

namespace sluice::cm {
namespace {

constexpr std::size_t kDatagramsPerPoll = 16;
constexpr std::uint8_t kMaxReads = 16;

}  // namespace

DeviceManager::DeviceManager(rdma::Device& device, ClockNs clock, const PeerAddress& server,
                             const AgentConfig& config)
    : device_(device), clock_(clock), server_(server), agent_(*this, config) {
  agent_.set_port({.guid = device.guid()});
}

std::optional<rdma::CmId> DeviceManager::connect(rdma::QueuePair& qp, std::uint16_t port,
                                                 std::span<const std::byte> private_data) noexcept {
  const std::uint32_t psn = random_.packet_sequence_number();
  const auto id =
      agent_.connect({local_for(device_.addresses(), server_), server_}, port, device_.max_path_mtu(),
                     {.qpn = static_cast<std::uint32_t>(qp.number()),
                      .receive_psn = psn,
                      .responder_resources = kMaxReads,
                      .initiator_depth = kMaxReads,
                      .private_data = {private_data.begin(), private_data.end()}},
                     clock_());
  if (!id) return std::nullopt;
  links_[*id] = {&qp, psn, {}};
  return static_cast<rdma::CmId>(*id);
}

bool DeviceManager::attach(Link& link) noexcept {
  const PeerParameters& peer = link.peer;
  return link.qp->connect({.local = peer.endpoint.local,
                           .remote = peer.endpoint.remote,
                           .remote_link = peer.endpoint.link,
                           .remote_qp = static_cast<rdma::QueuePairNumber>(peer.qpn),
                           .send_psn = peer.send_psn,
                           .receive_psn = link.receive_psn,
                           .path_mtu = std::min(peer.path_mtu, device_.max_path_mtu()),
                           .responder_resources = std::min(peer.responder_resources, kMaxReads),
                           .initiator_depth = std::min(peer.initiator_depth, kMaxReads),
                           .ack_timeout = std::max<std::uint8_t>(peer.ack_timeout, 14),
                           .rnr_retry = 7});
}

bool DeviceManager::accept(rdma::CmId cm_id, rdma::QueuePair& qp,
                           std::span<const std::byte> private_data) noexcept {
  const auto id = static_cast<Id>(cm_id);
  const auto at = links_.find(id);
  if (at == links_.end()) return false;
  Link& link = at->second;
  link.qp = &qp;
  link.receive_psn = random_.packet_sequence_number();
  const bool accepted =
      attach(link) &&
      agent_.accept(id,
                    {.qpn = static_cast<std::uint32_t>(qp.number()),
                     .receive_psn = link.receive_psn,
                     .responder_resources = std::min(link.peer.responder_resources, kMaxReads),
                     .initiator_depth = std::min(link.peer.initiator_depth, kMaxReads),
                     .private_data = {private_data.begin(), private_data.end()}},
                    clock_());
  if (!accepted) links_.erase(id);
  return accepted;
}

void DeviceManager::reject(rdma::CmId id, std::span<const std::byte> private_data) noexcept {
  agent_.reject(static_cast<Id>(id), RejectReason::Consumer, private_data, clock_());
  links_.erase(static_cast<Id>(id));
}

void DeviceManager::disconnect(rdma::CmId id) noexcept {
  if (const auto at = links_.find(static_cast<Id>(id)); at != links_.end()) at->second.qp = nullptr;
  agent_.disconnect(static_cast<Id>(id), clock_());
}

std::size_t DeviceManager::poll_events(std::span<rdma::CmEvent> events) noexcept {
  const std::uint64_t now = clock_();
  std::array<rdma::Datagram, kDatagramsPerPoll> datagrams;
  const std::size_t arrived = device_.receive_datagrams(datagrams);
  for (const rdma::Datagram& datagram : std::span(datagrams).first(arrived))
    agent_.on_mad({datagram.local, datagram.remote, datagram.remote_link},
                  std::span(datagram.data).first(datagram.bytes), now);
  agent_.advance(now);
  const std::size_t count = std::min(events.size(), events_.size());
  for (std::size_t i = 0; i < count; ++i) {
    events[i] = events_.front();
    events_.pop_front();
  }
  return count;
}

void DeviceManager::send_mad(const Endpoint& to, std::span<const std::byte, kMadBytes> mad) {
  rdma::Datagram datagram;
  datagram.local = to.local;
  datagram.remote = to.remote;
  datagram.remote_link = to.link;
  datagram.bytes = kMadBytes;
  std::copy(mad.begin(), mad.end(), datagram.data.begin());
  device_.send_datagram(datagram);
}

void DeviceManager::add_event(rdma::CmEventType type, Id id, const PeerParameters& peer,
                              std::span<const std::byte> private_data) {
  rdma::CmEvent event{.type = type,
                      .id = static_cast<rdma::CmId>(id),
                      .port = peer.port,
                      .peer_address = peer.endpoint.remote};
  const std::size_t bytes = std::min(private_data.size(), rdma::kMaxPrivateData);
  event.private_data_bytes = static_cast<std::uint8_t>(bytes);
  std::copy_n(private_data.begin(), bytes, event.private_data);
  events_.push_back(event);
}

void DeviceManager::on_request(Id id, const PeerParameters& peer) {
  links_[id] = {nullptr, 0, peer};
  add_event(rdma::CmEventType::ConnectRequest, id, peer, peer.private_data);
}

void DeviceManager::on_reply(Id id, const PeerParameters& peer) {
  const auto at = links_.find(id);
  if (at == links_.end()) return;
  at->second.peer = peer;
  if (!attach(at->second)) {
    on_rejected(id, RejectReason::UnsupportedRequest, {});
    agent_.disconnect(id, clock_());
    return;
  }
  agent_.ready(id, clock_());
  add_event(rdma::CmEventType::Established, id, peer, peer.private_data);
}

void DeviceManager::on_established(Id id) {
  const auto at = links_.find(id);
  if (at != links_.end()) add_event(rdma::CmEventType::Established, id, at->second.peer, {});
}

void DeviceManager::on_rejected(Id id, RejectReason, std::span<const std::byte> private_data) {
  const auto at = links_.find(id);
  if (at == links_.end()) return;
  add_event(rdma::CmEventType::Rejected, id, at->second.peer, private_data);
  links_.erase(at);
}

void DeviceManager::on_disconnected(Id id) {
  const auto at = links_.find(id);
  if (at == links_.end()) return;
  if (at->second.qp != nullptr) at->second.qp->to_error();
  add_event(rdma::CmEventType::Disconnected, id, at->second.peer, {});
  links_.erase(at);
}

}  // namespace sluice::cm
