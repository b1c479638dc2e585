// SPDX-License-Identifier: Apache-2.0
#include "dataplane/reactor/reactor.h"

#include <algorithm>

#include "dataplane/base/invariant.h"
#include "dataplane/reactor/cpu.h"
#include "dataplane/rpcrdma/link/private_data.h"

namespace sluice::reactor {
namespace {

/// Backing off: a nap makes what comes late, and is for when nobody has said anything for a while.
constexpr std::uint64_t kSpinBeforeNapNs = 1'000'000;
constexpr std::uint64_t kNapNs = 50'000;
/// A wait that what comes ends costs about as much as it is spun for; it lasts for as long as there has been
/// nothing, and as timers and commands of the control plane may wait.
constexpr std::uint64_t kSpinBeforeWaitNs = 50'000;
constexpr std::uint64_t kLongestWaitNs = 10'000'000;
constexpr std::uint64_t kHouseIntervalNs = 1'000'000;

}  // namespace

Reactor::Reactor(const ReactorConfig& config, rpcrdma::Engine& engine, segment::Layout& layout, Clock clock)
    : config_(config),
      engine_(engine),
      cm_(engine.device().connection_manager()),
      peers_(cm_ != nullptr ? cm_->peer_processes() : nullptr),
      layout_(layout),
      area_(layout.reactors[config.number]),
      clock_(clock),
      now_ns_(clock()),
      started_wall_ns_(segment::wall_ns()),
      tracked_(engine.connection_count()),
      properties_(area_) {
  // What a predecessor left; places that were never used stay untouched, so that they take no memory.
  for (auto& entry : area_.connections)
    if (entry.sequence() != 0) entry.write({});
  for (auto& use : area_.use)
    if (use.open.load(std::memory_order_relaxed) != 0) use.open.store(0, std::memory_order_relaxed);
  area_.info.write({.state = segment::ReactorState::Starting,
                    .cpu = config.cpu,
                    .numa_node = config.numa_node,
                    .started_ns = started_wall_ns_});
}

void Reactor::run() noexcept {
  while (!stopped()) {
    if (poll_once())
      idle_since_ns_ = 0;
    else
      idle();
  }
  publish();
  area_.info.write({.state = segment::ReactorState::Stopped,
                    .cpu = config_.cpu,
                    .numa_node = config_.numa_node,
                    .connections = 0,
                    .started_ns = started_wall_ns_});
}

bool Reactor::poll_once() noexcept {
  const std::size_t completions = engine_.poll(now_ns_);  // RX, call slots, TX
  counters_.work_completions += completions;
  bool busy = completions > 0;
  for (service::Handover* handover : lent_) busy |= handover->serve();
  for (service::Handover* handover : borrowed_) busy |= handover->collect();
  for (service::Poller* poller : pollers_) busy |= poller->poll(now_ns_);
  if (turns_to_housekeeping_-- == 0) {
    turns_to_housekeeping_ = kTurnsPerHousekeeping;
    busy |= housekeeping();
  }
  ++(busy ? counters_.polls_busy : counters_.polls_idle);
  return busy;
}

/// What a turn does not need: clock, connection management, commands, background work, counters.
bool Reactor::housekeeping() noexcept {
  now_ns_ = kept_house_ns_ = clock_();
  bool busy = cm_ != nullptr ? poll_cm() : poll_datagrams();
  busy |= poll_properties();
  busy |= poll_commands();
  tell_pending();
  report_closed();
  look_at_connections();
  for (service::Service* service : engine_.shared().services.all()) busy |= service->background(now_ns_);
  publish();
  return busy;
}

void Reactor::idle() noexcept {
  if (config_.idle == segment::IdlePolicy::Spin) return cpu::pause();
  const std::uint64_t now_ns = clock_();
  if (idle_since_ns_ == 0) idle_since_ns_ = now_ns;
  const std::uint64_t idle_ns = now_ns - idle_since_ns_;
  rdma::Device& device = engine_.device();
  const bool woken = device.wakes() && pollers_.empty() && lent_.empty() && borrowed_.empty();
  if (idle_ns < (woken ? kSpinBeforeWaitNs : kSpinBeforeNapNs)) return cpu::pause();
  device.wait(woken ? std::min(idle_ns, kLongestWaitNs) : kNapNs);
  now_ns_ = clock_();
  if (now_ns_ - kept_house_ns_ >= kHouseIntervalNs) turns_to_housekeeping_ = 0;
}

// --- Connections

bool Reactor::poll_cm() noexcept {
  std::array<rdma::CmEvent, kCmEventsPerTurn> events;
  const std::size_t count = cm_->poll_events(events);
  for (const rdma::CmEvent& event : std::span(events.data(), count)) {
    switch (event.type) {
      case rdma::CmEventType::ConnectRequest:
        on_connect_request(event);
        break;
      case rdma::CmEventType::Established:
        on_established(event);
        break;
      case rdma::CmEventType::Rejected:
      case rdma::CmEventType::Disconnected:
        if (rpcrdma::Connection* connection = find_connection(event.id))
          connection->close(rpcrdma::CloseReason::PeerClosed);
        if (PendingRequest* pending = find_pending(static_cast<std::uint32_t>(event.id)))
          pending->used = false;
        break;
    }
  }
  return count > 0;
}

void Reactor::on_established(const rdma::CmEvent& event) noexcept {
  rpcrdma::Connection* const connection = find_connection(event.id);
  if (connection == nullptr) return;
  if (tracked_[connection->number()].outgoing)
    connection->set_send_inline_bytes(rpcrdma::send_inline_bytes(
        rpcrdma::decode_private_data({event.private_data, event.private_data_bytes}),
        config_.dial.inline_bytes));
  mark_up(*connection);
  send_event({.type = segment::EventType::ConnectionUp,
              .cm_id = static_cast<std::uint32_t>(event.id),
              .connection = connection->number(),
              .peer = connection->peer()});
}

void Reactor::mark_up(rpcrdma::Connection& connection) noexcept {
  Tracked& tracked = tracked_[connection.number()];
  if (tracked.up) return;
  tracked.up = true;
  connection.established();
  publish_connection(connection.number());
}

/// Management datagrams pass through uninterpreted, both ways. What the control plane has no room for is
/// lost, as on the wire: its peers ask again.
bool Reactor::poll_datagrams() noexcept {
  std::array<rdma::Datagram, kDatagramsPerTurn> datagrams;
  const std::size_t count = engine_.device().receive_datagrams(datagrams);
  for (std::size_t i = 0; i < count; ++i)
    if (!area_.punt_up.push({datagrams[i]})) ++counters_.punts_lost;
  segment::Punt punt;
  std::size_t sent = 0;
  while (sent < kDatagramsPerTurn && area_.punt_down.pop(punt)) {
    ++sent;
    engine_.device().send_datagram(punt.datagram);
  }
  counters_.punts += count + sent;
  return count + sent > 0;
}

bool Reactor::poll_properties() noexcept {
  return properties_.poll([this](std::uint16_t number, std::uint32_t cm_id,
                                 std::span<const std::byte> octets) {
    if (number >= tracked_.size()) return true;
    rpcrdma::Connection& connection = engine_.connection(number);
    const bool gone = !connection.is_open() || static_cast<std::uint32_t>(tracked_[number].cm_id) != cm_id;
    return gone || connection.send_host_authentication(octets);
  });
}

bool Reactor::on_properties(void* reactor, rpcrdma::Connection& connection, std::span<const std::byte> body,
                            bool first) noexcept {
  auto& self = *static_cast<Reactor*>(reactor);
  const std::uint16_t number = connection.number();
  return self.properties_.take(number, static_cast<std::uint32_t>(self.tracked_[number].cm_id), body, first);
}

/// Some of them each time, in turn.
void Reactor::look_at_connections() noexcept {
  const auto count = static_cast<std::uint32_t>(tracked_.size());
  for (std::uint32_t i = 0; i < std::min(count, kConnectionsPerLook); ++i) {
    const std::uint32_t number = next_look_;
    next_look_ = next_look_ + 1 == count ? 0 : next_look_ + 1;
    rpcrdma::Connection& connection = engine_.connection(static_cast<std::uint16_t>(number));
    if (!connection.is_open()) continue;
    Tracked& tracked = tracked_[number];
    show_negotiated(connection, tracked);
    tell_heard(connection, tracked);
    show_use(connection);
    if (!tracked.drains || !connection.responder().idle()) continue;
    if (cm_ != nullptr) cm_->disconnect(tracked.cm_id);
    connection.close(rpcrdma::CloseReason::LocalClose);
  }
}

/// The version of a connection and the properties of version 2 are known only when the client has spoken.
void Reactor::show_negotiated(rpcrdma::Connection& connection, Tracked& tracked) noexcept {
  if (connection.version() == tracked.version_shown &&
      connection.heard_properties() == tracked.negotiated_shown)
    return;
  tracked.version_shown = connection.version();
  tracked.negotiated_shown = connection.heard_properties();
  publish_connection(connection.number());
}

/// A packet on the queue pair says that the peer is ready, also when its message that says so was lost.
void Reactor::tell_heard(rpcrdma::Connection& connection, Tracked& tracked) noexcept {
  if (tracked.queue_pair == 0 || tracked.outgoing || tracked.up || tracked.heard_told ||
      !connection.heard_from_peer())
    return;
  tracked.heard_told = true;
  send_event({.type = segment::EventType::ConnectionUp,
              .cm_id = static_cast<std::uint32_t>(tracked.cm_id),
              .connection = connection.number(),
              .peer = connection.peer()});
  mark_up(connection);
}

void Reactor::show_use(rpcrdma::Connection& connection) noexcept {
  segment::ConnectionUse& use = area_.use[connection.number()];
  rpcrdma::Responder& responder = connection.responder();
  const std::uint32_t whose = tracked_[connection.number()].outgoing ? segment::ConnectionUse::kToServer
                                                                     : segment::ConnectionUse::kOfClient;
  use.open.store(connection.is_open() ? whose : 0, std::memory_order_relaxed);
  use.client_class.store(connection.client_class(), std::memory_order_relaxed);
  use.calls.store(responder.calls(), std::memory_order_relaxed);
  use.granted.store(static_cast<std::uint32_t>(responder.grant()), std::memory_order_relaxed);
  use.busy.store(responder.busy_slots(), std::memory_order_relaxed);
  use.peak_busy.store(responder.take_peak(), std::memory_order_relaxed);
}

void Reactor::on_connect_request(const rdma::CmEvent& event) noexcept {
  ++counters_.connect_requests;
  const auto free = std::find_if(pending_.begin(), pending_.end(), [](const auto& p) { return !p.used; });
  if (free == pending_.end()) {
    ++counters_.connect_requests_refused;
    cm_->reject(event.id, {});
    return;
  }
  *free = {.used = true, .told = false, .event = event};
}

/// Connection requests go to the control plane; one that takes over is told again what its predecessor left.
void Reactor::tell_pending() noexcept {
  const std::uint32_t pid = layout_.control_plane.pid.load(std::memory_order_acquire);
  if (pid != control_plane_pid_) {
    control_plane_pid_ = pid;
    ++counters_.control_plane_changes;
    for (PendingRequest& pending : pending_) pending.told = false;
    for (Tracked& tracked : tracked_) {
      if (!tracked.outgoing || tracked.up || tracked.untold || cm_ != nullptr) continue;
      tracked.untold = true;
      ++untold_;
    }
  }
  for (std::size_t i = 0; untold_ > 0 && i < tracked_.size(); ++i)
    if (tracked_[i].untold && !tell_wanted(static_cast<std::uint16_t>(i))) return;
  for (PendingRequest& pending : pending_) {
    if (!pending.used || pending.told) continue;
    segment::Event event{.type = segment::EventType::ConnectRequest,
                         .cm_id = static_cast<std::uint32_t>(pending.event.id),
                         .port = pending.event.port,
                         .peer_pid = peers_ != nullptr ? peers_->pid(pending.event.id) : 0,
                         .peer = pending.event.peer_address,
                         .private_data_bytes = pending.event.private_data_bytes};
    std::copy_n(pending.event.private_data, pending.event.private_data_bytes, event.private_data);
    pending.told = area_.events.push(event);
    if (!pending.told) return;
  }
}

/// Asks the control plane for a connection that was dialed. False: there is no room to.
bool Reactor::tell_wanted(std::uint16_t number) noexcept {
  Tracked& tracked = tracked_[number];
  const auto data = rpcrdma::encode_private_data({.remote_invalidation = false,
                                                  .send_bytes = config_.dial.inline_bytes,
                                                  .receive_bytes = config_.dial.inline_bytes});
  segment::Event event{.type = segment::EventType::ConnectWanted,
                       .connection = number,
                       .queue_pair = tracked.queue_pair,
                       .port = config_.dial.port,
                       .peer = config_.dial.server,
                       .local = local_for(engine_.device().addresses(), config_.dial.server),
                       .path_mtu = engine_.device().max_path_mtu(),
                       .private_data_bytes = data.size()};
  std::copy(data.begin(), data.end(), event.private_data);
  if (!area_.events.push(event)) return false;
  tracked.untold = false;
  --untold_;
  return true;
}

Reactor::PendingRequest* Reactor::find_pending(std::uint32_t cm_id) noexcept {
  for (PendingRequest& pending : pending_)
    if (pending.used && static_cast<std::uint32_t>(pending.event.id) == cm_id) return &pending;
  return nullptr;
}

rpcrdma::Connection* Reactor::find_connection(rdma::CmId id) noexcept {
  const auto count = static_cast<std::uint16_t>(tracked_.size());
  for (std::uint16_t i = 0; i < count; ++i)
    if (tracked_[i].cm_id == id && engine_.connection(i).is_open()) return &engine_.connection(i);
  return nullptr;
}

void Reactor::report_closed() noexcept {
  while (rpcrdma::Connection* connection = engine_.take_closed()) {
    const Tracked tracked = std::exchange(tracked_[connection->number()], {});
    --open_;
    if (tracked.untold) --untold_;
    send_event({.type = segment::EventType::ConnectionDown,
                .cm_id = static_cast<std::uint32_t>(tracked.cm_id),
                .connection = connection->number(),
                .queue_pair = tracked.queue_pair,
                .outgoing = tracked.outgoing,
                .reason = static_cast<std::uint32_t>(connection->close_reason()),
                .peer = connection->peer()});
    publish_connection(connection->number());
  }
}

// --- Commands

bool Reactor::poll_commands() noexcept {
  segment::Command command;
  std::size_t count = 0;
  while (count < kCommandsPerTurn && area_.commands.pop(command)) {
    ++count;
    segment::Event done{.type = segment::EventType::CommandDone,
                        .id = command.id,
                        .cm_id = command.cm_id,
                        .connection = command.connection,
                        .peer = {}};
    done.status = carry_out(command, done);
    ++(done.status == segment::CommandStatus::Done ? counters_.commands : counters_.commands_refused);
    if (command.id != 0) send_event(done);
  }
  return count > 0;
}

segment::CommandStatus Reactor::carry_out(const segment::Command& command, segment::Event& done) noexcept {
  using segment::CommandStatus;
  switch (command.type) {
    case segment::CommandType::Accept:
      return accept(command);
    case segment::CommandType::Establish:
      return establish(command, done);
    case segment::CommandType::Connect:
      return connect(command, done);
    case segment::CommandType::ConnectFailed:
      if (rpcrdma::Connection* connection = dialed(command)) {
        connection->close(rpcrdma::CloseReason::PeerClosed);
        return CommandStatus::Done;
      }
      return CommandStatus::UnknownConnection;
    case segment::CommandType::Established:
    case segment::CommandType::Ended: {
      rpcrdma::Connection* connection = find_connection(static_cast<rdma::CmId>(command.cm_id));
      if (connection == nullptr) return CommandStatus::UnknownConnection;
      if (command.type == segment::CommandType::Established)
        mark_up(*connection);
      else
        connection->close(rpcrdma::CloseReason::PeerClosed);
      return CommandStatus::Done;
    }
    case segment::CommandType::Reject: {
      PendingRequest* pending = find_pending(command.cm_id);
      if (pending == nullptr) return CommandStatus::UnknownConnection;
      const std::size_t bytes = std::min<std::size_t>(command.private_data_bytes, rdma::kMaxPrivateData);
      cm_->reject(pending->event.id, {command.private_data, bytes});
      pending->used = false;
      return CommandStatus::Done;
    }
    case segment::CommandType::Abandon:
      if (peers_ != nullptr) peers_->abandon(static_cast<rdma::CmId>(command.cm_id));
      if (rpcrdma::Connection* connection = find_connection(static_cast<rdma::CmId>(command.cm_id)))
        connection->close(rpcrdma::CloseReason::PeerClosed);
      return CommandStatus::Done;
    case segment::CommandType::Shutdown:
      stop();
      return CommandStatus::Done;
    case segment::CommandType::Close:
    case segment::CommandType::Drain:
    case segment::CommandType::SetCredits:
    case segment::CommandType::SetParameters:
    case segment::CommandType::Admit:
    case segment::CommandType::Trace:
      break;
  }
  rpcrdma::Connection* const connection = named(command);
  if (connection == nullptr) return CommandStatus::UnknownConnection;
  carry_out_on(*connection, command);
  return CommandStatus::Done;
}

/// The connection that a command means, unless it is another one by now.
rpcrdma::Connection* Reactor::named(const segment::Command& command) noexcept {
  if (command.connection >= engine_.connection_count()) return nullptr;
  rpcrdma::Connection& connection = engine_.connection(static_cast<std::uint16_t>(command.connection));
  const bool same = static_cast<std::uint32_t>(tracked_[command.connection].cm_id) == command.cm_id;
  return connection.is_open() && same ? &connection : nullptr;
}

void Reactor::carry_out_on(rpcrdma::Connection& connection, const segment::Command& command) noexcept {
  Tracked& tracked = tracked_[connection.number()];
  switch (command.type) {
    case segment::CommandType::Close: {
      if (cm_ != nullptr) cm_->disconnect(tracked.cm_id);
      const bool given =
          command.reason <= static_cast<std::uint32_t>(rpcrdma::CloseReason::NoCommonVersion) &&
          command.reason != 0;
      connection.close(given ? static_cast<rpcrdma::CloseReason>(command.reason)
                             : rpcrdma::CloseReason::LocalClose);
      return;
    }
    case segment::CommandType::Drain:
      tracked.drains = true;
      connection.set_credits(1);
      return;
    case segment::CommandType::SetCredits:
      if (!tracked.drains) connection.set_credits(command.first_grant);
      if (connection.client_class() == command.client_class) return show_use(connection);
      connection.set_client_class(command.client_class);
      break;
    case segment::CommandType::Trace:
      connection.responder().set_traced(command.on != 0);
      return;
    case segment::CommandType::Admit:
      connection.admit();
      break;
    case segment::CommandType::SetParameters:
      connection.apply({.send_bytes = command.parameters.send_bytes,
                        .max_segment_bytes = command.parameters.max_segment_bytes,
                        .max_segments = command.parameters.max_segments,
                        .reverse = static_cast<rpcrdma::v2::ReverseSupport>(command.parameters.reverse)});
      break;
    default:
      return;
  }
  publish_connection(connection.number());
}

segment::CommandStatus Reactor::accept(const segment::Command& command) noexcept {
  PendingRequest* pending = find_pending(command.cm_id);
  if (pending == nullptr) return segment::CommandStatus::UnknownConnection;
  const rdma::CmEvent event = pending->event;
  pending->used = false;
  rpcrdma::Connection* connection = engine_.free_connection();
  if (connection == nullptr) {
    ++counters_.connect_requests_refused;
    cm_->reject(event.id, {});
    return segment::CommandStatus::NoRoom;
  }
  rdma::QueuePair* qp = open_connection(*connection, connection_config(command), event.peer_address, nullptr);
  if (qp == nullptr) {
    cm_->reject(event.id, {});
    return segment::CommandStatus::NoRoom;
  }
  const std::size_t bytes = std::min<std::size_t>(command.private_data_bytes, rdma::kMaxPrivateData);
  if (!cm_->accept(event.id, *qp, {command.private_data, bytes})) {
    connection->close(rpcrdma::CloseReason::PeerClosed);
    return segment::CommandStatus::Failed;
  }
  tracked_[connection->number()] = {
      .cm_id = event.id,
      .peer_pid = peers_ != nullptr ? peers_->pid(event.id) : 0,
      .since_ns = segment::wall_ns()};
  publish_connection(connection->number());
  return segment::CommandStatus::Done;
}

rpcrdma::ConnectionConfig Reactor::connection_config(const segment::Command& command) const noexcept {
  return {.receive_inline_bytes = command.receive_inline_bytes,
          .send_inline_bytes = command.send_inline_bytes,
          .credit_grant = command.credits,
          .first_grant = command.first_grant,
          .client_class = command.client_class,
          .reply_chunks = config_.reply_chunks,
          .credits_requested = engine_.config().callers > 0 ? rpcrdma::kCallBacksAtOnce : 0,
          .max_version = config_.max_version,
          .version2 = config_.version2};
}

rdma::QueuePair* Reactor::open_connection(rpcrdma::Connection& connection,
                                          const rpcrdma::ConnectionConfig& config, const PeerAddress& peer,
                                          rpcrdma::Requester* requester) noexcept {
  std::unique_ptr<rdma::QueuePair> qp;
  try {
    qp = engine_.device().create_queue_pair(engine_.queue_pair_limits());
  } catch (const std::exception&) {
    ++counters_.connect_requests_refused;
    return nullptr;
  }
  rdma::QueuePair* const result = qp.get();
  connection.open(std::move(qp), config, peer, requester);
  // A server's properties need nobody's judgement.
  connection.set_property_sink(config.active ? nullptr : &on_properties, this);
  ++open_;
  return result;
}

segment::CommandStatus Reactor::establish(const segment::Command& command, segment::Event& done) noexcept {
  ++counters_.connect_requests;
  rpcrdma::Connection* connection = engine_.free_connection();
  if (connection == nullptr) {
    ++counters_.connect_requests_refused;
    return segment::CommandStatus::NoRoom;
  }
  rdma::QueuePair* qp =
      open_connection(*connection, connection_config(command), command.attributes.remote, nullptr);
  if (qp == nullptr) return segment::CommandStatus::NoRoom;
  tracked_[connection->number()] = {.cm_id = static_cast<rdma::CmId>(command.cm_id),
                                    .since_ns = segment::wall_ns(),
                                    .queue_pair = static_cast<std::uint32_t>(qp->number()),
                                    .cm_state = command.cm_state};
  if (!qp->connect(command.attributes)) {
    connection->close(rpcrdma::CloseReason::LocalClose);
    return segment::CommandStatus::Failed;
  }
  done.connection = connection->number();
  done.queue_pair = static_cast<std::uint32_t>(qp->number());
  publish_connection(connection->number());
  return segment::CommandStatus::Done;
}

// --- Connections to a server

rpcrdma::Connection* Reactor::dial(rpcrdma::Requester& requester, service::Service& callee) noexcept {
  rpcrdma::Connection* const connection = engine_.free_connection();
  if (connection == nullptr) return nullptr;
  const DialConfig& dial = config_.dial;
  rpcrdma::Version2Config version2 = config_.version2;
  version2.hold_calls = false;
  rdma::QueuePair* const qp = open_connection(*connection,
                                              {.receive_inline_bytes = dial.inline_bytes,
                                               .credit_grant = dial.call_backs,
                                               .reply_chunks = config_.reply_chunks,
                                               .credits_requested = dial.credits_requested,
                                               .sole_service = &callee,
                                               .active = true,
                                               .max_version = config_.max_version,
                                               .version2 = version2},
                                              dial.server, &requester);
  if (qp == nullptr) return nullptr;
  Tracked& tracked = tracked_[connection->number()];
  tracked = {.outgoing = true,
             .since_ns = segment::wall_ns(),
             .queue_pair = static_cast<std::uint32_t>(qp->number())};
  if (cm_ == nullptr) {
    tracked.untold = true;
    ++untold_;
  } else {
    const auto data = rpcrdma::encode_private_data(
        {.remote_invalidation = false, .send_bytes = dial.inline_bytes, .receive_bytes = dial.inline_bytes});
    const auto id = cm_->connect(*qp, dial.port, data);
    if (id)
      tracked.cm_id = *id;
    else
      connection->close(rpcrdma::CloseReason::PeerClosed);
  }
  publish_connection(connection->number());
  return connection;
}

void Reactor::hang_up(rpcrdma::Connection& connection) noexcept {
  if (cm_ != nullptr) cm_->disconnect(tracked_[connection.number()].cm_id);
  connection.close(rpcrdma::CloseReason::LocalClose);
}

/// The connection that was dialed and that a command means, unless it is another one by now.
rpcrdma::Connection* Reactor::dialed(const segment::Command& command) noexcept {
  if (command.connection >= engine_.connection_count()) return nullptr;
  rpcrdma::Connection& connection = engine_.connection(static_cast<std::uint16_t>(command.connection));
  const Tracked& tracked = tracked_[command.connection];
  const bool same = tracked.outgoing && !tracked.up && tracked.queue_pair == command.queue_pair;
  return connection.is_open() && same ? &connection : nullptr;
}

segment::CommandStatus Reactor::connect(const segment::Command& command, segment::Event& done) noexcept {
  rpcrdma::Connection* const connection = dialed(command);
  if (connection == nullptr) return segment::CommandStatus::UnknownConnection;
  Tracked& tracked = tracked_[command.connection];
  tracked.cm_id = static_cast<rdma::CmId>(command.cm_id);
  tracked.cm_state = command.cm_state;
  done.queue_pair = tracked.queue_pair;
  connection->set_send_inline_bytes(command.send_inline_bytes);
  if (!connection->queue_pair().connect(command.attributes)) {
    connection->close(rpcrdma::CloseReason::LocalClose);
    return segment::CommandStatus::Failed;
  }
  mark_up(*connection);
  return segment::CommandStatus::Done;
}

// --- What others see

void Reactor::send_event(const segment::Event& event) noexcept {
  if (!area_.events.push(event)) ++counters_.events_lost;
}

void Reactor::publish() noexcept {
  std::atomic<std::uint64_t>* to = nullptr;
#define SLUICE_COUNTER_SET(name, group, help) to++->store(from.name, std::memory_order_relaxed);
  for (std::uint32_t client_class = 0; client_class < engine_.shared().classes_seen; ++client_class) {
    to = area_.transport_counters[client_class].data();
    const rpcrdma::Counters& from = engine_.counters(client_class);
    SLUICE_TRANSPORT_COUNTERS(SLUICE_COUNTER_SET)
  }
  to = area_.counters.data();
  const auto& from = counters_;
  SLUICE_REACTOR_COUNTERS(SLUICE_COUNTER_SET)
#undef SLUICE_COUNTER_SET
  for (std::size_t i = 0; i < kInvariantCount; ++i)
    area_.invariant_failures[i].store(invariant_failures()[i], std::memory_order_relaxed);
  for (std::size_t state = 0; state < segment::kSlotStateCount; ++state)
    area_.slots_in_state[state].store(engine_.shared().slots_in_state[state], std::memory_order_relaxed);
  std::array<std::uint64_t, segment::kMaxDeviceStatistics> statistics;
  const std::size_t known = engine_.device().read_statistics(statistics);
  for (std::size_t k = 0; k < known; ++k)
    area_.device_statistics[k].store(statistics[k], std::memory_order_relaxed);

  area_.info.write({.state = segment::ReactorState::Running,
                    .cpu = config_.cpu,
                    .numa_node = config_.numa_node,
                    .connections = open_,
                    .started_ns = started_wall_ns_});
  if (publish_services) publish_services();
}

void Reactor::publish_connection(std::uint32_t number) noexcept {
  rpcrdma::Connection& connection = engine_.connection(static_cast<std::uint16_t>(number));
  segment::ConnectionInfo info;
  switch (connection.state()) {
    case rpcrdma::Connection::State::Closed:
      area_.use[number].open.store(0, std::memory_order_relaxed);
      return area_.connections[number].write(info);
    case rpcrdma::Connection::State::Draining:
      info.state = segment::ConnectionState::Closing;
      break;
    case rpcrdma::Connection::State::Open:
      info.state = tracked_[number].up ? segment::ConnectionState::Open : segment::ConnectionState::Opening;
      break;
  }
  info.cm_id = static_cast<std::uint32_t>(tracked_[number].cm_id);
  info.peer_pid = tracked_[number].peer_pid;
  info.version = connection.version();
  info.peer = connection.peer();
  info.client_class = connection.client_class();
  show_use(connection);
  info.receive_inline_bytes = connection.config().receive_inline_bytes;
  info.send_inline_bytes = connection.send_bytes();
  if (connection.speaks_version_2()) {
    const auto show = [](const rpcrdma::v2::Parameters& p) {
      return segment::PropertyInfo{.max_send_bytes = p.max_send_bytes,
                                   .receive_buffer_bytes = p.receive_buffer_bytes,
                                   .max_segment_bytes = p.max_segment_bytes,
                                   .max_segments = p.max_segments,
                                   .reverse = static_cast<std::uint32_t>(p.reverse)};
    };
    info.window = connection.flow_control().window();
    info.peer_window = connection.flow_control().peer_limit();
    info.own_properties = show(connection.own_parameters());
    info.peer_properties = show(connection.peer_parameters());
    info.heard_properties = connection.heard_properties();
    info.held = connection.holds_calls();
  }
  info.outgoing = tracked_[number].outgoing;
  info.since_ns = tracked_[number].since_ns;
  info.queue_pair = tracked_[number].queue_pair;
  info.cm_state = tracked_[number].cm_state;
  area_.connections[number].write(info);
}

}  // namespace sluice::reactor
