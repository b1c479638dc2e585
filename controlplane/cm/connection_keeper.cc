// SPDX-License-Identifier: Apache-2.0
#include "controlplane/cm/connection_keeper.h"

#include <algorithm>

#include "controlplane/cm/driver_connections.h"
#include "controlplane/cm/kernel_connections.h"
#include "controlplane/cm/punted_connections.h"
#include "controlplane/events/kinds.h"

namespace sluice::cm {
namespace {

std::unique_ptr<Connections> make_connections(const ConnectionContext& context) {
  switch (context.config.block.driver) {
    case segment::Driver::SoftRoce:
      return std::make_unique<PuntedConnections>(context);
    case segment::Driver::Verbs:
      return std::make_unique<KernelConnections>(context);
    case segment::Driver::Loopback:
      break;
  }
  return std::make_unique<DriverConnections>(context);
}

}  // namespace

ConnectionKeeper::ConnectionKeeper(segment::Layout& layout, const config::Config& config,
                                   const policy::CreditKeeper& credits, controlplane::Outbox& outbox,
                                   events::Journal& journal, tasks::Arena& tasks)
    : layout_(layout),
      config_(config),
      outbox_(outbox),
      admission_(config.admission_limits()),
      book_(admission_),
      reports_(journal),
      context_{layout, config, credits, admission_, book_, outbox, journal, tasks},
      managed_(make_connections(context_)),
      watch_(layout, config.block.reactors, config.block.all_connections(), *this) {}

void ConnectionKeeper::take_over() {
  for (std::uint32_t reactor = 0; reactor < config_.block.reactors; ++reactor) {
    segment::ReactorArea& area = layout_.reactors[reactor];
    // Reactors repeat their requests to a new control plane.
    segment::Event event;
    for (std::uint32_t i = 0; i < area.events.capacity() && area.events.pop(event); ++i)
      if (event.type == segment::EventType::CommandDone) managed_->on_answer_to_predecessor(reactor, event);
    inherited_[reactor] = area.incarnations.load(std::memory_order_relaxed);
  }
  watch_.look_at_all();
}

void ConnectionKeeper::on_data_plane_changed(std::uint64_t now_ns) {
  now_ns_ = now_ns;
  outbox_.forget();
  book_.forget_held();
  managed_->forget_unmade(now_ns);
  watch_.look_at_all();
}

void ConnectionKeeper::set_draining(bool draining) {
  admission_.set_draining(draining);
  watch_.for_each([&](std::uint32_t reactor, std::uint32_t number, const SeenConnection& seen) {
    if (!seen.outgoing) wanted(reactor).drain(number, seen.incarnation, draining);
  });
}

// --- What the tables show

void ConnectionKeeper::on_appeared(std::uint32_t reactor, std::uint32_t number, const SeenConnection& seen) {
  book_.appeared(reactor, seen);
  if (!seen.outgoing && wanted(reactor).course(number, seen.incarnation).draining != draining())
    wanted(reactor).drain(number, seen.incarnation, draining());
  const bool ours = static_cast<std::int32_t>(seen.incarnation - inherited_[reactor]) > 0;
  if (ours && seen.was_up) reports_.up(reactor, number, seen);
  if (ours)
    managed_->on_appeared(reactor, number, seen);
  else
    managed_->restore(reactor, number);
}

void ConnectionKeeper::on_changed(std::uint32_t reactor, std::uint32_t number, const SeenConnection& seen) {
  if (seen.state != segment::ConnectionState::Open) return;
  reports_.up(reactor, number, seen);
  managed_->on_open(seen, now_ns_);
}

void ConnectionKeeper::on_gone(std::uint32_t reactor, std::uint32_t number, const SeenConnection& seen) {
  reports_.gone(reactor, number, seen, now_ns_);
  book_.gone(seen);
  managed_->on_gone(reactor, seen, now_ns_);
}

void ConnectionKeeper::on_missed(std::uint32_t reactor, std::uint32_t, const SeenConnection& expected) {
  book_.failed(reactor, expected.cm_id);
  managed_->on_gone(reactor, expected, now_ns_);
}

// --- Events of reactors

bool ConnectionKeeper::poll(std::uint64_t now_ns) {
  now_ns_ = now_ns;
  bool any = managed_->poll(now_ns);
  for (std::uint32_t reactor = 0; reactor < config_.block.reactors; ++reactor) {
    segment::Event event;
    auto& events = layout_.reactors[reactor].events;
    for (std::uint32_t i = 0; i < events.capacity() && events.pop(event); ++i) {
      any = true;
      on_event(reactor, event, now_ns);
    }
  }
  watch_.look_in_turn();
  reports_.turn(now_ns);
  return outbox_.flush() || any;
}

void ConnectionKeeper::on_event(std::uint32_t reactor, const segment::Event& event, std::uint64_t now_ns) {
  switch (event.type) {
    case segment::EventType::ConnectRequest:
      return managed_->on_connect_request(reactor, event, now_ns);
    case segment::EventType::ConnectWanted:
      managed_->on_connect_wanted(reactor, event, now_ns);
      return expect(reactor, event, true);
    case segment::EventType::ConnectionDown:
      reports_.reason(reactor, event.incarnation, event.reason, now_ns);
      [[fallthrough]];
    case segment::EventType::ConnectionUp:
      return watch_.look(reactor, event.connection);
    case segment::EventType::CommandDone:
      return on_command_done(reactor, event, now_ns);
  }
}

void ConnectionKeeper::on_command_done(std::uint32_t reactor, const segment::Event& event,
                                       std::uint64_t now_ns) {
  managed_->on_command_done(reactor, event, now_ns);
  if (event.status == segment::CommandStatus::Done) return expect(reactor, event, false);
  refused(event.peer, event.status);
  book_.failed(reactor, event.cm_id);
}

/// A request that was admitted. A close or a grant whose connection has gone meanwhile refuses nobody.
void ConnectionKeeper::refused(const PeerAddress& peer, segment::CommandStatus status) {
  if (status == segment::CommandStatus::UnknownConnection || peer == PeerAddress{}) return;
  const bool no_room = status == segment::CommandStatus::NoRoom;
  context_.journal.add(events::ConnectionRefused{
      .peer = to_string(peer), .reason = no_room ? "no_room_in_data_plane" : "failed_in_data_plane"});
}

/// The reactor has published the connection before it sent the event.
void ConnectionKeeper::expect(std::uint32_t reactor, const segment::Event& event, bool outgoing) {
  if (event.incarnation == 0) return;
  watch_.expect(reactor, event.connection,
                {.incarnation = event.incarnation,
                 .cm_id = event.cm_id,
                 .queue_pair = event.queue_pair,
                 .outgoing = outgoing,
                 .peer = event.peer});
}

}  // namespace sluice::cm
