// SPDX-License-Identifier: Apache-2.0
#include "dataplane/reactor/publisher.h"

#include <array>
#include <utility>

#include "dataplane/base/invariant.h"
#include "dataplane/base/small_algorithms.h"
#include "pmd/device.h"

namespace sluice::reactor {
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
  // Entries that were never used stay untouched: their pages then take no memory.
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
  }
}

void Publisher::publish_connection(rpcrdma::Connection& connection) noexcept {
  const std::uint16_t number = connection.number();
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
  segment::ConnectionUse& use = area_.use[connection.number()];
  rpcrdma::Responder& responder = connection.responder();
  const std::uint32_t direction = connections_.record(connection).outgoing
                                      ? segment::ConnectionUse::kToServer
                                      : segment::ConnectionUse::kOfClient;
  const segment::Followed& followed = connections_.record(connection).followed;
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

/// Publications are more frequent than who decides by the peak looks: it lasts until then.
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
