// SPDX-License-Identifier: Apache-2.0
#include "controlplane/cm/rdma_cm_manager.h"

#include <algorithm>

namespace sluice::cm {

std::optional<rdma::CmId> RdmaCmManager::connect(rdma::QueuePair& qp, std::uint16_t port,
                                                 std::span<const std::byte> private_data) noexcept {
  const auto id = manager_.connect({}, server_, port, static_cast<std::uint32_t>(qp.number()), private_data);
  if (!id) return std::nullopt;
  links_[*id] = {.qp = &qp, .attributes = {}, .private_data = {}, .answer = {}};
  return static_cast<rdma::CmId>(*id);
}

bool RdmaCmManager::accept(rdma::CmId cm_id, rdma::QueuePair& qp,
                           std::span<const std::byte> private_data) noexcept {
  const auto id = static_cast<Id>(cm_id);
  const auto at = links_.find(id);
  if (at == links_.end()) return false;
  Link& link = at->second;
  link.qp = &qp;
  link.answer.assign(private_data.begin(), private_data.end());
  link.accepts = true;
  link.connecting = qp.connect(link.attributes);
  return link.connecting;
}

void RdmaCmManager::reject(rdma::CmId id, std::span<const std::byte> private_data) noexcept {
  manager_.reject(static_cast<Id>(id), private_data);
  links_.erase(static_cast<Id>(id));
}

void RdmaCmManager::disconnect(rdma::CmId cm_id) noexcept {
  const auto id = static_cast<Id>(cm_id);
  manager_.disconnect(id);
  links_.erase(id);
}

std::size_t RdmaCmManager::poll_events(std::span<rdma::CmEvent> events) noexcept {
  manager_.poll();
  for (auto& [id, link] : links_)
    if (link.connecting && link.qp->state() != rdma::QueuePair::State::Init) on_connected(id, link);
  const std::size_t count = std::min(events.size(), events_.size());
  std::copy_n(events_.begin(), count, events.begin());
  events_.erase(events_.begin(), events_.begin() + static_cast<std::ptrdiff_t>(count));
  return count;
}

void RdmaCmManager::add_event(rdma::CmEventType type, Id id) {
  rdma::CmEvent event;
  event.type = type;
  event.id = static_cast<rdma::CmId>(id);
  if (const auto at = links_.find(id); at != links_.end()) {
    const Link& link = at->second;
    event.peer_address = link.attributes.remote;
    const std::size_t bytes = std::min(link.private_data.size(), rdma::kMaxPrivateData);
    event.private_data_bytes = static_cast<std::uint8_t>(bytes);
    std::copy_n(link.private_data.begin(), bytes, event.private_data);
  }
  events_.push_back(event);
}

void RdmaCmManager::on_request(Id id, const RdmaCmPeer& peer) {
  links_[id] = {
      .qp = nullptr, .attributes = peer.attributes, .private_data = peer.private_data, .answer = {}};
  add_event(rdma::CmEventType::ConnectRequest, id);
}

void RdmaCmManager::on_reply(Id id, const RdmaCmPeer& peer) {
  Link& link = links_[id];
  link.attributes = peer.attributes;
  link.private_data = peer.private_data;
  link.connecting = link.qp != nullptr && link.qp->connect(peer.attributes);
  if (!link.connecting) add_event(rdma::CmEventType::Rejected, id);
}

/// The device has connected the queue pair, or refuses: the peer may know.
void RdmaCmManager::on_connected(Id id, Link& link) {
  link.connecting = false;
  const bool up = link.qp->state() == rdma::QueuePair::State::ReadyToSend;
  if (link.accepts) {
    const auto number = static_cast<std::uint32_t>(link.qp->number());
    if (!up || !manager_.accept(id, number, link.answer)) add_event(rdma::CmEventType::Disconnected, id);
    return;
  }
  add_event(up && manager_.ready(id) ? rdma::CmEventType::Established : rdma::CmEventType::Rejected, id);
}

void RdmaCmManager::on_established(Id id) {
  add_event(rdma::CmEventType::Established, id);
}

void RdmaCmManager::on_rejected(Id id, const std::string&) {
  add_event(rdma::CmEventType::Rejected, id);
  links_.erase(id);
}

void RdmaCmManager::on_disconnected(Id id) {
  if (const auto at = links_.find(id); at != links_.end() && at->second.qp != nullptr)
    at->second.qp->to_error();
  add_event(rdma::CmEventType::Disconnected, id);
}

}  // namespace sluice::cm
