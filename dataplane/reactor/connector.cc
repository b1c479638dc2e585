// SPDX-License-Identifier: Apache-2.0
#include "dataplane/reactor/connector.h"

#include <array>
#include <cstring>

#include "dataplane/base/small_algorithms.h"
#include "dataplane/reactor/datagram_relay.h"
#include "dataplane/reactor/driver_connector.h"
#include "dataplane/reactor/plane_connector.h"
#include "pmd/device.h"

namespace sluice::reactor {

std::unique_ptr<Connector> make_connector(const ReactorConfig& config, rdma::Device& device,
                                          ConnectionTable& connections, segment::ReactorArea& area,
                                          EventSender& events, Counters& counters) {
  if (rdma::ConnectionManager* const manager = device.connection_manager())
    return std::make_unique<DriverConnector>(config.dial, *manager, events, counters);
  return std::make_unique<PlaneConnector>(config.dial, device, connections, area, events, counters);
}

namespace {

std::span<const std::byte> private_data(const segment::Command& command) {
  return {command.private_data, smaller_of<std::size_t>(command.private_data_bytes, rdma::kMaxPrivateData)};
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
  auto free = pending_.begin();
  while (free != pending_.end() && free->used) ++free;
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
    std::memcpy(event.private_data, pending.event.private_data, pending.event.private_data_bytes);
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

void PlaneConnector::announce() noexcept {
  if (!unsent_) return;
  for (std::uint16_t number = 0; number < connections_.size(); ++number) {
    ConnectionRecord& record = connections_.record(number);
    if (!record.request_unsent) continue;
    if (!events_.try_send(connect_wanted(number))) return;
    record.request_unsent = false;
  }
  unsent_ = false;
}

void PlaneConnector::forget_announcements() noexcept {
  for (std::uint16_t number = 0; number < connections_.size(); ++number) {
    ConnectionRecord& record = connections_.record(number);
    if (record.outgoing && !record.established) record.request_unsent = unsent_ = true;
  }
}

segment::Event PlaneConnector::connect_wanted(std::uint16_t number) const noexcept {
  const auto data = dial_.private_data();
  const ConnectionRecord& record = connections_.record(number);
  segment::Event event{.type = segment::EventType::ConnectWanted,
                       .connection = number,
                       .incarnation = record.incarnation,
                       .queue_pair = record.queue_pair,
                       .port = record.server_port,
                       .peer = record.server,
                       .local = local_for(device_.addresses(), record.server),
                       .path_mtu = device_.max_path_mtu(),
                       .private_data_bytes = data.size()};
  std::memcpy(event.private_data, data.data(), data.size());
  return event;
}

/// Its requests wait in the control plane.
bool PlaneConnector::take_request(const segment::Command& answer) noexcept {
  if (answer.type != segment::CommandType::Accept) return false;
  ++counters_.connect_requests;
  return true;
}

bool DatagramRelay::poll() noexcept {
  std::array<rdma::Datagram, kDatagramsPerPass> datagrams;
  // Datagrams above the room in the ring stay in the device, where each source has a share of the places.
  const std::size_t room = area_.punt_up.capacity() - area_.punt_up.size();
  const std::size_t received =
      device_.receive_datagrams(std::span(datagrams).first(smaller_of(room, datagrams.size())));
  for (std::size_t i = 0; i < received; ++i)
    if (!area_.punt_up.push({datagrams[i]})) ++counters_.punts_lost;
  segment::Punt punt;
  std::size_t sent = 0;
  while (sent < kDatagramsPerPass && area_.punt_down.pop(punt)) {
    ++sent;
    device_.send_datagram(punt.datagram);
  }
  counters_.punts += received + sent;
  return received + sent > 0;
}

}  // namespace sluice::reactor
