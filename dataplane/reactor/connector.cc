// SPDX-License-Identifier: Apache-2.0
#include "dataplane/reactor/connector.h"

#include <array>
#include <cstring>
#include <utility>

#include "dataplane/base/invariant.h"
#include "dataplane/base/small_algorithms.h"
#include "dataplane/reactor/connectors.h"
#include "dataplane/reactor/publisher.h"
#include "pmd/device.h"

namespace sluice::reactor {

Owned<Connector> make_connector(const ReactorConfig& config, rdma::Device& device,
                                ConnectionTable& connections, segment::ReactorArea& area, EventSender& events,
                                Counters& counters) {
  if (rdma::ConnectionManager* const manager = device.connection_manager())
    return make_owned<DriverConnector>(config.dial, *manager, events, counters);
  return make_owned<PlaneConnector>(config.dial, device, connections, area, events, counters);
}

namespace {

std::span<const std::byte> private_data(const segment::Command& command) {
  return {command.private_data, smaller_of<std::size_t>(command.private_data_bytes, rdma::kMaxPrivateData)};
}

}  // namespace

bool DriverConnector::poll(Listener& listener) noexcept {
  std::array<rdma::CmEvent, kCmEventsPerPass> events;
  const std::size_t count = manager_.poll_events(events);
  static_cast<void>(SLUICE_INVARIANT(count <= events.size(), buffer_bounds));
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
  static_cast<void>(SLUICE_INVARIANT(!free->used, reactor_state));
  *free = {.used = true, .announced = false, .event = event};
}

void DriverConnector::announce() noexcept {
  for (PendingRequest& pending : pending_) {
    if (!pending.used || pending.announced) continue;
    static_cast<void>(SLUICE_INVARIANT(pending.event.private_data_bytes <= sizeof pending.event.private_data,
                                       buffer_bounds));
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
    static_cast<void>(SLUICE_INVARIANT(record.outgoing && record.incarnation != 0, reactor_state));
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
  static_cast<void>(SLUICE_INVARIANT(data.size() <= sizeof event.private_data, buffer_bounds));
  std::memcpy(event.private_data, data.data(), data.size());
  return event;
}

/// Only counts an Accept because requests are queued in the control plane.
bool PlaneConnector::take_request(const segment::Command& answer) noexcept {
  if (answer.type != segment::CommandType::Accept) return false;
  ++counters_.connect_requests;
  return true;
}

bool DatagramRelay::poll() noexcept {
  std::array<rdma::Datagram, kDatagramsPerPass> datagrams;
  // Datagrams beyond the room in the ring stay in the device, which limits the queue of each source.
  const std::size_t room = area_.punt_up.capacity() - area_.punt_up.size();
  const std::size_t received =
      device_.receive_datagrams(std::span(datagrams).first(smaller_of(room, datagrams.size())));
  static_cast<void>(SLUICE_INVARIANT(received <= smaller_of(room, datagrams.size()), buffer_bounds));
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

// --- Publication in the segment

namespace {

segment::PropertyInfo property_info(const rpcrdma::v2::Parameters& parameters) {
  return {.max_send_bytes = parameters.max_send_bytes,
          .receive_buffer_bytes = parameters.receive_buffer_bytes,
          .max_segment_bytes = parameters.max_segment_bytes,
          .max_segments = parameters.max_segments,
          .reverse = static_cast<std::uint32_t>(parameters.reverse)};
}

segment::DeviceCondition condition_of(const rdma::Device& device) {
  switch (device.condition()) {
    case rdma::Condition::Up:
      break;
    case rdma::Condition::PortDown:
      return segment::DeviceCondition::NoLink;
    case rdma::Condition::Gone:
      return segment::DeviceCondition::Gone;
    case rdma::Condition::Broken:
      return segment::DeviceCondition::Broken;
  }
  return segment::DeviceCondition::Up;
}

}  // namespace

Publisher::Publisher(const ReactorConfig& config, rpcrdma::Engine& engine, ConnectionTable& connections,
                     const Counters& counters, segment::ReactorArea& area)
    : config_(config),
      engine_(engine),
      connections_(connections),
      counters_(counters),
      area_(area),
      started_ns_(segment::wall_ns()) {
  // Entries that were never used are not written, so that their pages use no memory.
  for (auto& entry : area_.connections)
    if (entry.sequence() != 0) entry.write({});
  for (auto& use : area_.use)
    if (use.open.load(std::memory_order_relaxed) != 0) use.open.store(0, std::memory_order_relaxed);
  publish_info(segment::ReactorState::Starting, 0);
}

void Publisher::publish_reactor() noexcept {
  publish_counters();
  publish_info(segment::ReactorState::Running, connections_.in_use());
}

void Publisher::publish_stopped() noexcept {
  publish_counters();
  publish_info(segment::ReactorState::Stopped, 0);
}

void Publisher::publish_info(segment::ReactorState state, std::uint32_t connections) noexcept {
  static_cast<void>(SLUICE_INVARIANT(connections <= connections_.size(), reactor_state));
  area_.info.write({.state = state,
                    .cpu = config_.cpu,
                    .numa_node = config_.numa_node,
                    .connections = connections,
                    .started_ns = started_ns_,
                    .guid = engine_.device().guid(),
                    .path_mtu = engine_.device().max_path_mtu(),
                    .condition = condition_of(engine_.device())});
}

void Publisher::publish_counters() noexcept {
  static_cast<void>(SLUICE_INVARIANT(engine_.classes_seen() <= area_.transport_counters.size(), table_index));
  std::atomic<std::uint64_t>* to = nullptr;
#define SLUICE_COUNTER_SET(name, group, help) to++->store(from.name, std::memory_order_relaxed);
  for (std::uint32_t client_class = 0; client_class < engine_.classes_seen(); ++client_class) {
    to = area_.transport_counters[client_class].data();
    const rpcrdma::Counters& from = engine_.counters(client_class);
    SLUICE_TRANSPORT_COUNTERS(SLUICE_COUNTER_SET)
  }
  to = area_.counters.data();
  const Counters& from = counters_;
  SLUICE_REACTOR_COUNTERS(SLUICE_COUNTER_SET)
#undef SLUICE_COUNTER_SET
  for (std::size_t i = 0; i < kInvariantCount; ++i)
    area_.invariant_failures[i].store(invariant_failures()[i], std::memory_order_relaxed);
  for (std::size_t state = 0; state < segment::kSlotStateCount; ++state)
    area_.slots_in_state[state].store(engine_.slots_in_state(state), std::memory_order_relaxed);
  publish_pools();
  std::array<std::uint64_t, segment::kMaxDeviceStatistics> statistics;
  const std::size_t known = engine_.device().read_statistics(statistics);
  static_cast<void>(SLUICE_INVARIANT(known <= statistics.size(), buffer_bounds));
  for (std::size_t k = 0; k < known; ++k)
    area_.device_statistics[k].store(statistics[k], std::memory_order_relaxed);
}

void Publisher::publish_pools() noexcept {
  segment::PoolUse* to = area_.pools.data();
  const auto put = [&to](const rdma::SharedUse& use) { to++->publish(use.buffers, use.held, use.waiting); };
  for (const rpcrdma::SharedMemory* memory :
       {&engine_.call_memory(), &engine_.reply_memory(), &engine_.assembly_memory()}) {
    put(memory->small_use());
    put(memory->large_use());
    static_cast<void>(SLUICE_INVARIANT(to <= area_.pools.data() + area_.pools.size(), buffer_bounds));
  }
}

void Publisher::publish_connection(rpcrdma::Connection& connection) noexcept {
  const std::uint16_t number = connection.number();
  static_cast<void>(SLUICE_INVARIANT(number < area_.connections.size(), table_index));
  const ConnectionRecord& record = connections_.record(number);
  segment::ConnectionInfo info;
  switch (connection.state()) {
    case rpcrdma::Connection::State::Closed:
      area_.use[number].open.store(0, std::memory_order_relaxed);
      area_.use[number].peak_busy.store(0, std::memory_order_relaxed);
      return area_.connections[number].write(info);
    case rpcrdma::Connection::State::Draining:
      info.state = segment::ConnectionState::Closing;
      break;
    case rpcrdma::Connection::State::Open:
      info.state = record.established ? segment::ConnectionState::Open : segment::ConnectionState::Opening;
      break;
  }
  info.cm_id = static_cast<std::uint32_t>(record.cm_id);
  info.incarnation = record.incarnation;
  info.peer_pid = record.peer_pid;
  info.version = connection.version();
  info.peer = connection.peer();
  info.client_class = connection.client_class();
  publish_use(connection);
  info.receive_inline_bytes = connection.config().receive_inline_bytes;
  info.send_inline_bytes = connection.send_bytes();
  if (connection.speaks_version_2()) {
    info.window = connection.flow_control().window();
    info.peer_window = connection.flow_control().peer_limit();
    info.own_properties = property_info(connection.own_parameters());
    info.peer_properties = property_info(connection.peer_parameters());
    info.heard_properties = connection.heard_properties();
    info.held = connection.holds_calls();
  }
  info.host = connection.peer_host();
  info.outgoing = record.outgoing;
  info.since_ns = record.since_ns;
  info.queue_pair = record.queue_pair;
  info.cm_state = record.cm_state;
  area_.connections[number].write(info);
}

void Publisher::publish_use(rpcrdma::Connection& connection) noexcept {
  static_cast<void>(SLUICE_INVARIANT(connection.number() < area_.use.size(), table_index));
  segment::ConnectionUse& use = area_.use[connection.number()];
  rpcrdma::Responder& responder = connection.responder();
  const std::uint32_t direction = connections_.record(connection).outgoing
                                      ? segment::ConnectionUse::kToServer
                                      : segment::ConnectionUse::kOfClient;
  const segment::AppliedState& followed = connections_.record(connection).followed;
  use.followed_course.store(followed.course, std::memory_order_relaxed);
  use.followed_grant.store(followed.grant, std::memory_order_relaxed);
  use.open.store(connection.is_open() ? direction : 0, std::memory_order_relaxed);
  use.client_class.store(connection.client_class(), std::memory_order_relaxed);
  use.calls.store(responder.calls(), std::memory_order_relaxed);
  use.granted.store(static_cast<std::uint32_t>(responder.grant()), std::memory_order_relaxed);
  use.busy.store(responder.busy_slots(), std::memory_order_relaxed);
  publish_peak(connection, use);
  use.oldest_state.store(static_cast<std::uint32_t>(responder.oldest_call().state),
                         std::memory_order_relaxed);
  use.served.store(responder.served(), std::memory_order_relaxed);
  use.served_ns.store(responder.served_ns(), std::memory_order_relaxed);
  use.received_bytes.store(connection.traffic().received, std::memory_order_relaxed);
  use.sent_bytes.store(connection.traffic().sent, std::memory_order_relaxed);
  use.oldest_ns.store(responder.oldest_call_age_ns(), std::memory_order_relaxed);
  std::uint64_t held_bytes = connection.shared_bytes();
  for (const service::Poller* poller : pollers_) held_bytes += poller->held_bytes(connection.number());
  use.held_bytes.store(held_bytes, std::memory_order_relaxed);
}

/// Publishes the peak of busy slots. It is kept until the control plane has read it because publications are
/// more frequent than its decisions.
void Publisher::publish_peak(rpcrdma::Connection& connection, segment::ConnectionUse& use) noexcept {
  const std::uint32_t peaks_read = area_.peaks_read.load(std::memory_order_relaxed);
  const bool anew = std::exchange(connections_.record(connection).peaks_read, peaks_read) != peaks_read;
  const std::uint32_t shown = anew ? 0 : use.peak_busy.load(std::memory_order_relaxed);
  use.peak_busy.store(larger_of(connection.responder().take_peak(), shown), std::memory_order_relaxed);
}

void Publisher::publish_negotiation(rpcrdma::Connection& connection) noexcept {
  ConnectionRecord& record = connections_.record(connection);
  if (connection.version() == record.published_version &&
      connection.heard_properties() == record.published_properties)
    return;
  record.published_version = connection.version();
  record.published_properties = connection.heard_properties();
  publish_connection(connection);
}

}  // namespace sluice::reactor
