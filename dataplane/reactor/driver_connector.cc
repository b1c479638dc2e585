// SPDX-License-Identifier: Apache-2.0
#include "dataplane/reactor/driver_connector.h"

#include <algorithm>

namespace sluice::reactor {
namespace {

std::span<const std::byte> private_data(const segment::Command& command) {
  return {command.private_data, std::min<std::size_t>(command.private_data_bytes, rdma::kMaxPrivateData)};
}

}  // namespace

bool DriverConnector::poll(Listener& listener) noexcept {
  std::array<rdma::CmEvent, kCmEventsPerPass> events;
  const std::size_t count = manager_.poll_events(events);
  for (const rdma::CmEvent& event : std::span(events.data(), count)) on_event(event, listener);
  return count > 0;
}

void DriverConnector::on_event(const rdma::CmEvent& event, Listener& listener) noexcept {
  switch (event.type) {
    case rdma::CmEventType::ConnectRequest:
      return on_request(event);
    case rdma::CmEventType::Established:
      return listener.on_established(event.id, {event.private_data, event.private_data_bytes});
    case rdma::CmEventType::Rejected:
    case rdma::CmEventType::Disconnected:
      if (PendingRequest* const pending = find(static_cast<std::uint32_t>(event.id))) pending->used = false;
      return listener.on_ended(event.id);
  }
}

void DriverConnector::on_request(const rdma::CmEvent& event) noexcept {
  ++counters_.connect_requests;
  const auto free = std::find_if(pending_.begin(), pending_.end(), [](const auto& p) { return !p.used; });
  if (free == pending_.end()) {
    ++counters_.connect_requests_refused;
    return manager_.reject(event.id, {});
  }
  *free = {.used = true, .announced = false, .event = event};
}

void DriverConnector::announce() noexcept {
  for (PendingRequest& pending : pending_) {
    if (!pending.used || pending.announced) continue;
    segment::Event event{.type = segment::EventType::ConnectRequest,
                         .cm_id = static_cast<std::uint32_t>(pending.event.id),
                         .port = pending.event.port,
                         .peer_pid = manager_.peer_pid(pending.event.id),
                         .peer = pending.event.peer_address,
                         .private_data_bytes = pending.event.private_data_bytes};
    std::copy_n(pending.event.private_data, pending.event.private_data_bytes, event.private_data);
    pending.announced = events_.try_send(event);
    if (!pending.announced) return;
  }
}

void DriverConnector::forget_announcements() noexcept {
  for (PendingRequest& pending : pending_) pending.announced = false;
}

bool DriverConnector::take_request(const segment::Command& answer) noexcept {
  PendingRequest* const pending = find(answer.cm_id);
  if (pending == nullptr) return false;
  pending->used = false;
  return true;
}

bool DriverConnector::accept(const segment::Command& accept, rdma::QueuePair& queue_pair,
                             ConnectionRecord& record) noexcept {
  const auto id = static_cast<rdma::CmId>(accept.cm_id);
  record.peer_pid = manager_.peer_pid(id);
  return manager_.accept(id, queue_pair, private_data(accept));
}

void DriverConnector::refuse(const segment::Command& answer) noexcept {
  const bool rejected = answer.type == segment::CommandType::Reject;
  manager_.reject(static_cast<rdma::CmId>(answer.cm_id),
                  rejected ? private_data(answer) : std::span<const std::byte>{});
}

bool DriverConnector::connect(rdma::QueuePair& queue_pair, ConnectionRecord& record) noexcept {
  const auto id = manager_.connect(queue_pair, record.server_port, dial_.private_data());
  if (id) record.cm_id = *id;
  return id.has_value();
}

DriverConnector::PendingRequest* DriverConnector::find(std::uint32_t cm_id) noexcept {
  for (PendingRequest& pending : pending_)
    if (pending.used && static_cast<std::uint32_t>(pending.event.id) == cm_id) return &pending;
  return nullptr;
}

}  // namespace sluice::reactor
