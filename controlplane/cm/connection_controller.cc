// SPDX-License-Identifier: Apache-2.0
#include "controlplane/cm/connection_controller.h"

#include <memory>
#include <string>

#include "controlplane/cm/agent.h"
#include "controlplane/cm/connection_monitor.h"
#include "controlplane/cm/connections.h"
#include "controlplane/cm/outbox.h"
#include "controlplane/config/config.h"
#include "controlplane/events/journal.h"
#include "controlplane/events/kinds.h"
#include "dataplane/base/invariant.h"
#include "dataplane/rpcrdma/link/config.h"
#include "dataplane/segment/heartbeat.h"
#include "dataplane/segment/layout.h"

namespace sluice::cm {
namespace {

Owned<Connections> make_connections(const ConnectionContext& context) {
  switch (context.block.driver) {
    case segment::Driver::SoftRoce:
      return make_punted_connections(context);
    case segment::Driver::Verbs:
      return make_kernel_connections(context);
    case segment::Driver::Loopback:
      break;
  }
  return make_driver_connections(context);
}

}  // namespace

ConnectionController::ConnectionController(segment::Layout& layout, const config::Config& config,
                                           const policy::CreditController& credits, Outbox& outbox,
                                           events::Journal& journal, tasks::Arena& tasks)
    : layout_(layout),
      config_(config),
      outbox_(outbox),
      admission_(config.admission_limits()),
      book_(admission_),
      reports_(journal),
      managed_(make_connections({layout, config.block, config.classes, config.segment, credits, admission_,
                                 book_, reports_, outbox, tasks})),
      watch_(layout, config.block.reactors, config.block.all_connections(), *this) {}

ConnectionController::~ConnectionController() = default;

void ConnectionController::reconfigure() {
  admission_.set_limits(config_.admission_limits());
}

const AgentStatistics* ConnectionController::agent() const {
  return managed_->statistics();
}

bool ConnectionController::needs_new_process() const {
  return managed_->needs_new_process();
}

segment::DesiredStateWriter ConnectionController::wanted(std::uint32_t reactor) {
  return segment::DesiredStateWriter(layout_.reactors[reactor].wanted);
}

void ConnectionController::take_over() {
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

void ConnectionController::on_data_plane_changed(std::uint64_t now_ns) {
  now_ns_ = now_ns;
  outbox_.forget();
  book_.forget_held();
  managed_->forget_unmade(now_ns);
  watch_.look_at_all();
}

void ConnectionController::set_draining(bool draining) {
  admission_.set_draining(draining);
  watch_.for_each([&](std::uint32_t reactor, std::uint32_t number, const SeenConnection& seen) {
    if (!seen.outgoing) wanted(reactor).drain(number, seen.incarnation, draining);
  });
}

void ConnectionController::on_appeared(std::uint32_t reactor, std::uint32_t number,
                                       const SeenConnection& seen) {
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

void ConnectionController::on_changed(std::uint32_t reactor, std::uint32_t number,
                                      const SeenConnection& seen) {
  if (seen.state != segment::ConnectionState::Open) return;
  reports_.up(reactor, number, seen);
  managed_->on_open(seen, now_ns_);
}

void ConnectionController::on_gone(std::uint32_t reactor, std::uint32_t number, const SeenConnection& seen) {
  reports_.gone(reactor, number, seen, now_ns_);
  book_.gone(seen);
  managed_->on_gone(reactor, seen, now_ns_);
}

void ConnectionController::on_missed(std::uint32_t reactor, std::uint32_t, const SeenConnection& expected) {
  book_.failed(reactor, expected.cm_id);
  managed_->on_gone(reactor, expected, now_ns_);
}

bool ConnectionController::poll(std::uint64_t now_ns) {
  static_cast<void>(SLUICE_INVARIANT(owner_.is_caller(), object_owner));
  now_ns_ = now_ns;
  managed_->measure_reactors(now_ns);
  bool any = managed_->poll(now_ns);
  for (std::uint32_t reactor = 0; reactor < config_.block.reactors; ++reactor) {
    segment::Event event;
    auto& events = layout_.reactors[reactor].events;
    for (std::uint32_t i = 0; i < events.capacity() && events.pop(event); ++i) {
      any = true;
      on_event(reactor, event, now_ns);
    }
  }
  watch_.sample_next();
  reports_.poll(now_ns);
  return outbox_.flush() || any;
}

void ConnectionController::on_event(std::uint32_t reactor, const segment::Event& event,
                                    std::uint64_t now_ns) {
  switch (event.type) {
    case segment::EventType::ConnectRequest:
      return managed_->on_connect_request(reactor, event, now_ns);
    case segment::EventType::ConnectWanted:
      managed_->on_connect_wanted(reactor, event, now_ns);
      return expect(reactor, event, true);
    case segment::EventType::ConnectionDown:
      reports_.reason(reactor, event, now_ns);
      [[fallthrough]];
    case segment::EventType::ConnectionUp:
      return watch_.sample(reactor, event.connection);
    case segment::EventType::CommandDone:
      return on_command_done(reactor, event, now_ns);
  }
}

void ConnectionController::on_command_done(std::uint32_t reactor, const segment::Event& event,
                                           std::uint64_t now_ns) {
  // If the request timed out before this answer, its refusal is counted already.
  const bool awaited = managed_->awaits(event);
  managed_->on_command_done(reactor, event, now_ns);
  if (event.status == segment::CommandStatus::Done) return expect(reactor, event, false);
  const auto peer = book_.failed(reactor, event.cm_id);
  if (!peer || !awaited || event.status == segment::CommandStatus::UnknownConnection) return;
  reports_.refused(*peer, event.status == segment::CommandStatus::NoRoom
                              ? policy::Refusal::NoRoomInDataPlane
                              : policy::Refusal::FailedInDataPlane);
}

/// Expects a connection in the table. The reactor publishes it before it sends the event.
void ConnectionController::expect(std::uint32_t reactor, const segment::Event& event, bool outgoing) {
  if (event.incarnation == 0) return;
  watch_.expect(reactor, event.connection,
                {.incarnation = event.incarnation,
                 .cm_id = event.cm_id,
                 .queue_pair = event.queue_pair,
                 .outgoing = outgoing,
                 .peer = event.peer});
}

namespace {

/// Returns a stable name for programs. `reason` may be any number.
const char* name_of(std::uint32_t reason) {
  using rpcrdma::CloseReason;
  if (reason > static_cast<std::uint32_t>(CloseReason::Silent)) return "unknown";
  switch (static_cast<CloseReason>(reason)) {
    case CloseReason::None:
      return "none";
    case CloseReason::PeerClosed:
      return "peer_closed";
    case CloseReason::LocalClose:
      return "local_close";
    case CloseReason::TransportError:
      return "transport_error";
    case CloseReason::RemoteAccess:
      return "remote_access";
    case CloseReason::InvalidationError:
      return "invalidation_error";
    case CloseReason::CreditOverrun:
      return "credit_overrun";
    case CloseReason::NoAnswer:
      return "no_answer";
    case CloseReason::SequenceTimeout:
      return "sequence_timeout";
    case CloseReason::NotAuthenticated:
      return "not_authenticated";
    case CloseReason::NoCommonVersion:
      return "no_common_version";
    case CloseReason::InternalError:
      return "internal_error";
    case CloseReason::NoProgress:
      return "no_progress";
    case CloseReason::Unanswerable:
      return "unanswerable";
    case CloseReason::Silent:
      return "silent";
  }
  return "unknown";
}

/// Returns a name for the status of a failed work request. `status` may be any number.
const char* name_of_status(std::uint32_t status) {
  if (status == 0) return "";
  if (status > static_cast<std::uint32_t>(rdma::WcStatus::RnrRetryExceeded)) return "unknown";
  return rdma::to_string(static_cast<rdma::WcStatus>(status));
}

double seconds_since(std::uint64_t wall_ns) {
  const std::uint64_t now_ns = segment::wall_ns();
  return wall_ns != 0 && now_ns > wall_ns ? static_cast<double>(now_ns - wall_ns) * 1e-9 : 0;
}

}  // namespace

void ConnectionReports::refused(const PeerAddress& peer, policy::Verdict verdict) {
  journal_.add(events::ConnectionRefused{.peer = to_string(peer), .reason = policy::name_of(verdict)});
}

void ConnectionReports::refused(const PeerAddress& peer, policy::Refusal why, const std::string& detail) {
  ++refusals_[static_cast<std::size_t>(why)];
  journal_.add(events::ConnectionRefused{
      .peer = to_string(peer), .reason = policy::info_of(why).name, .detail = detail});
}

std::string detail_of(const Refused& refused) {
  if (refused.why != Refusal::InvalidPathMtu) return {};
  const auto bytes = [](std::uint16_t path_mtu) {
    return path_mtu == 0 ? std::string("an unknown number of") : std::to_string(path_mtu);
  };
  return "path MTU: " + bytes(refused.path_mtu) + " bytes requested, " + bytes(refused.accepted_path_mtu) +
         " bytes accepted";
}

void ConnectionReports::server_refused(const PeerAddress& server, const std::string& reason,
                                       const std::string& detail) {
  journal_.add(events::ServerRefused{.peer = to_string(server), .reason = reason, .detail = detail});
}

void ConnectionReports::up(std::uint32_t reactor, std::uint32_t number, const SeenConnection& seen) {
  journal_.add(events::ConnectionUp{
      .reactor = reactor, .connection = number, .peer = to_string(seen.peer), .outgoing = seen.outgoing});
}

void ConnectionReports::gone(std::uint32_t reactor, std::uint32_t number, const SeenConnection& seen,
                             std::uint64_t now_ns) {
  const Key key{reactor, seen.incarnation};
  const auto at = waiting_.find(key);
  if (at == waiting_.end() && waiting_.size() < kMaxWaiting) {
    waiting_[key] = {.number = number, .seen = seen, .since_ns = now_ns};
    return;
  }
  Half whole = at != waiting_.end() ? at->second : Half{};
  whole.number = number;
  whole.seen = seen;
  report(reactor, whole);
  if (at != waiting_.end()) waiting_.erase(at);
}

void ConnectionReports::reason(std::uint32_t reactor, const segment::Event& event, std::uint64_t now_ns) {
  if (event.incarnation == 0) return;
  const Key key{reactor, event.incarnation};
  auto at = waiting_.find(key);
  if (at == waiting_.end()) {
    if (waiting_.size() >= kMaxWaiting) return;
    at = waiting_.emplace(key, Half{.since_ns = now_ns}).first;
  }
  at->second.why = name_of(event.reason);
  at->second.work_status = name_of_status(event.work_status);
  at->second.vendor_error = event.vendor_error;
  if (at->second.seen.incarnation == 0) return;
  report(reactor, at->second);
  waiting_.erase(at);
}

void ConnectionReports::poll(std::uint64_t now_ns) {
  for (auto at = waiting_.begin(); at != waiting_.end();) {
    if (now_ns - at->second.since_ns < kReasonWaitNs) {
      ++at;
      continue;
    }
    // A reason whose connection was never seen is dropped.
    if (at->second.seen.incarnation != 0) report(at->first.first, at->second);
    at = waiting_.erase(at);
  }
}

void ConnectionReports::report(std::uint32_t reactor, const Half& half) {
  journal_.add(events::ConnectionDown{.reactor = reactor,
                                      .connection = half.number,
                                      .peer = to_string(half.seen.peer),
                                      .outgoing = half.seen.outgoing,
                                      .reason = half.why != nullptr ? half.why : "unknown",
                                      .was_up = half.seen.was_up,
                                      .age_s = seconds_since(half.seen.since_ns),
                                      .work_status = half.work_status,
                                      .vendor_error = half.vendor_error});
}

}  // namespace sluice::cm
