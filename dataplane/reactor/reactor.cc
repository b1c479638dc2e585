// SPDX-License-Identifier: Apache-2.0
#include "dataplane/reactor/reactor.h"

#include "dataplane/base/invariant.h"
#include "dataplane/base/small_algorithms.h"
#include "dataplane/reactor/commands.h"

namespace sluice::reactor {

Reactor::Reactor(const ReactorConfig& config, rpcrdma::Engine& engine, segment::Layout& layout, Clock clock)
    : engine_(engine),
      layout_(layout),
      area_(layout.reactors[config.number]),
      clock_(clock),
      now_ns_(clock()),
      connections_(engine, area_.incarnations),
      publisher_(config, engine, connections_, counters_, area_),
      events_(area_, counters_),
      properties_(area_, connections_),
      connector_(make_connector(config, engine.device(), connections_, area_, events_, counters_)),
      setup_(config, engine, connections_, *connector_, properties_, publisher_, events_, counters_),
      dialer_(config, engine, connections_, *connector_, setup_, publisher_),
      reconciler_(area_, connections_, setup_, publisher_, counters_),
      commands_(area_, setup_, dialer_, events_, counters_, clock),
      idle_(config.idle, engine.device(), clock) {
  static_cast<void>(SLUICE_INVARIANT(config.number < layout.reactors.size(), table_index));
  static_cast<void>(SLUICE_INVARIANT(connections_.size() <= segment::kMaxConnections, table_index));
  engine.stages().measure(clock);
}

void Reactor::measure_calls() {
  engine_.measure(area_.calls, clock_);
  engine_.set_trace(area_.trace);
}

void Reactor::run() noexcept {
  owner_.pass_on();
  engine_.pass_on();
  engine_.stages().start();
  while (!stopped()) {
    if (poll_once())
      idle_.on_work();
    else
      idle();
  }
  now_ns_ = clock_();
  publisher_.publish_stopped();
  for (ControlTask* task : control_tasks_) task->on_control_pass(now_ns_);
}

bool Reactor::poll_once() noexcept {
  SLUICE_INVARIANT_DEBUG(owner_.is_caller(), object_owner);
  SLUICE_INVARIANT_DEBUG(turns_to_control_pass_ <= kTurnsPerControlPass, reactor_state);
  // RX: completions and waiting calls; TX: staged requests.
  const std::size_t completions = engine_.poll(now_ns_);
  counters_.work_completions += completions;
  bool busy = engine_.worked();
  busy |= poll_services();
  busy |= poll_upstreams();
  if (turns_to_control_pass_-- == 0) {
    turns_to_control_pass_ = kTurnsPerControlPass;
    busy |= control_pass();
  }
  ++(busy ? counters_.polls_busy : counters_.polls_idle);
  return busy;
}

bool Reactor::poll_services() noexcept {
  bool busy = false;
  for (service::CrossReactorCall* calls : calls_of_others_)
    busy |= calls->serve();  // RX: calls of other reactors
  for (service::CrossReactorCall* calls : calls_to_others_)
    busy |= calls->collect();  // TX: answers of other reactors
  if (busy) engine_.stages().end(Stage::Services);
  return busy;
}

bool Reactor::poll_upstreams() noexcept {
  bool busy = false;
  for (service::Poller* poller : pollers_) busy |= poller->poll(now_ns_);  // RX, TX: TCP
  if (busy) engine_.stages().end(Stage::Upstreams);
  return busy;
}

/// Performs work off the message path, every kTurnsPerControlPass iterations.
bool Reactor::control_pass() noexcept {
  StageTimes& stages = engine_.stages();
  now_ns_ = last_control_pass_ns_ = stages.end(Stage::Idle);  // the last part of this iteration had no work
  bool busy = setup_.poll();
  busy |= properties_.poll();
  busy |= commands_.poll();
  reconciler_.observe(layout_.control_plane.beats.load(std::memory_order_relaxed), now_ns_);
  busy |= reconciler_.poll();
  if (commands_.shutdown_requested()) stop();
  announce_requests();
  setup_.report_closed();
  check_connections();
  stages.end(Stage::Control);
  bool worked = false;
  for (service::Service* service : engine_.services()) worked |= service->background(now_ns_);
  stages.end(worked ? Stage::Services : Stage::Control);
  publish();
  for (ControlTask* task : control_tasks_) task->on_control_pass(now_ns_);
  stages.end(Stage::Control);
  return busy || worked;
}

void Reactor::publish() noexcept {
  const StageTimes& stages = engine_.stages();
  counters_.device_ns = stages.sum_ns(Stage::Device);
  counters_.calls_ns = stages.sum_ns(Stage::Calls);
  counters_.services_ns = stages.sum_ns(Stage::Services);
  counters_.upstreams_ns = stages.sum_ns(Stage::Upstreams);
  counters_.control_ns = stages.sum_ns(Stage::Control);
  counters_.idle_ns = stages.sum_ns(Stage::Idle);
  publisher_.publish_reactor();
}

/// Sends announcements again to a new control plane, which takes over the requests of its predecessor.
void Reactor::announce_requests() noexcept {
  // Pairs with ControlPlane::take_over(): the events for the predecessor have left the ring.
  const std::uint32_t epoch = layout_.reading_epoch.load(std::memory_order_acquire);
  if (epoch != control_plane_epoch_) {
    control_plane_epoch_ = epoch;
    ++counters_.control_plane_changes;
    connector_->forget_announcements();
  }
  connector_->announce();
}

/// Checks some of the connections, round robin.
void Reactor::check_connections() noexcept {
  const std::uint16_t count = connections_.size();
  for (std::uint32_t i = 0; i < smaller_of<std::uint32_t>(count, kConnectionsPerPass); ++i) {
    static_cast<void>(SLUICE_INVARIANT(next_checked_ < count, table_index));
    rpcrdma::Connection& connection = connections_.connection(next_checked_);
    next_checked_ =
        next_checked_ + 1 == count ? std::uint16_t{0} : static_cast<std::uint16_t>(next_checked_ + 1);
    if (!connection.is_open()) continue;
    reconciler_.reconcile(connection);
    if (!connection.is_open()) continue;
    publisher_.publish_negotiation(connection);
    setup_.check_peer_ready(connection);
    publisher_.publish_use(connection);
    setup_.close_if_drained(connection);
  }
}

void Reactor::idle() noexcept {
  const bool only_device = pollers_.empty() && calls_of_others_.empty() && calls_to_others_.empty();
  const bool slept = idle_.on_no_work(only_device);
  const std::uint64_t back_ns = engine_.stages().end(Stage::Idle);
  if (!slept) return;
  now_ns_ = back_ns;
  if (now_ns_ - last_control_pass_ns_ >= kControlIntervalNs) turns_to_control_pass_ = 0;
}

bool Idle::on_no_work(bool only_device) noexcept {
  if (policy_ == segment::IdlePolicy::Spin) {
    cpu::pause();
    return false;
  }
  const std::uint64_t now_ns = clock_();
  if (idle_since_ns_ == 0) idle_since_ns_ = now_ns;
  SLUICE_INVARIANT_DEBUG(now_ns >= idle_since_ns_, timer_state);
  const std::uint64_t idle_ns = now_ns - idle_since_ns_;
  const bool woken = only_device && device_.wakes();
  if (idle_ns < (woken ? kSpinBeforeWaitNs : kSpinBeforeSleepNs)) {
    cpu::pause();
    return false;
  }
  // The wait is as long as the idle time so far, so that the cost of the wake-up is a small fraction of it.
  device_.wait(woken ? smaller_of(idle_ns, kMaxWaitNs) : kSleepNs);
  return true;
}

// --- Commands of the control plane, and reconciliation with its desired state

namespace {

bool makes_connection(const segment::Command& command) noexcept {
  return command.type == segment::CommandType::Accept || command.type == segment::CommandType::Connect;
}

}  // namespace

Commands::Commands(segment::ReactorArea& area, ConnectionSetup& setup, ServerDialer& dialer,
                   EventSender& events, Counters& counters, Clock clock)
    : area_(area), setup_(setup), dialer_(dialer), events_(events), counters_(counters), clock_(clock) {}

bool Commands::poll() noexcept {
  if (!send_answer()) return false;
  std::size_t count = 0;
  if (connecting_) {
    if (!finish_connecting() || !send_answer()) return true;
    ++count;
  }
  static_cast<void>(SLUICE_INVARIANT(!answer_ && !connecting_, reactor_state));
  segment::Command command;
  for (; count < kCommandsPerPass; ++count) {
    if (waiting_)
      command = *waiting_;
    else if (!area_.commands.pop(command))
      return count > 0;
    if (makes_connection(command) && !(pace_.due(clock_()) && setup_.has_queue_pair())) {
      if (!waiting_) ++counters_.connections_delayed;
      static_cast<void>(SLUICE_INVARIANT(!connecting_, reactor_state));
      waiting_ = command;
      return true;
    }
    waiting_.reset();
    run(command);
    if (connecting_ || !send_answer()) return true;
  }
  return true;
}

/// Returns false while the answer to the last command finds no room. No further command is read then, so that
/// no answer is lost.
bool Commands::send_answer() noexcept {
  if (answer_ && events_.try_send(*answer_)) answer_.reset();
  return !answer_;
}

void Commands::run(const segment::Command& command) noexcept {
  static_cast<void>(SLUICE_INVARIANT(!connecting_ && !answer_ && !waiting_, reactor_state));
  segment::Event done{.type = segment::EventType::CommandDone,
                      .id = command.id,
                      .cm_id = command.cm_id,
                      .connection = command.connection,
                      .peer = {}};
  const std::uint64_t begin_ns = makes_connection(command) ? clock_() : 0;
  done.status = execute(command, done);
  if (begin_ns != 0) pace_.made(begin_ns, clock_());
  if (!makes_connection(command) || done.status != segment::CommandStatus::Done) return answer(done);
  connecting_ = done;
  finish_connecting();
}

/// Returns false while the device is connecting.
bool Commands::finish_connecting() noexcept {
  static_cast<void>(SLUICE_INVARIANT(connecting_ && !answer_, reactor_state));
  const auto status = setup_.finish(*connecting_);
  if (!status) return false;
  connecting_->status = *status;
  answer(*connecting_);
  connecting_.reset();
  return true;
}

void Commands::answer(const segment::Event& done) noexcept {
  ++(done.status == segment::CommandStatus::Done ? counters_.commands : counters_.commands_refused);
  if (done.id == 0) return;
  static_cast<void>(SLUICE_INVARIANT(!answer_, reactor_state));
  answer_ = done;
  if (!send_answer()) ++counters_.answers_delayed;
}

segment::CommandStatus Commands::execute(const segment::Command& command, segment::Event& done) noexcept {
  using segment::CommandStatus;
  switch (command.type) {
    case segment::CommandType::Accept:
      return setup_.accept(command, done);
    case segment::CommandType::Reject:
      return setup_.reject(command);
    case segment::CommandType::Connect:
      return dialer_.connect(command, done);
    case segment::CommandType::ConnectFailed:
      return dialer_.connect_failed(command);
    case segment::CommandType::Shutdown:
      shutdown_ = true;
      return CommandStatus::Done;
  }
  return CommandStatus::UnknownConnection;  // unknown command type
}

namespace {

rpcrdma::CloseReason close_reason(std::uint32_t reason) {
  const bool known = reason != 0 && reason <= static_cast<std::uint32_t>(rpcrdma::CloseReason::Silent);
  return known ? static_cast<rpcrdma::CloseReason>(reason) : rpcrdma::CloseReason::LocalClose;
}

/// Applies the changes that segment::follow() finds.
class Changes {
 public:
  Changes(rpcrdma::Connection& connection, ConnectionRecord& record, ConnectionSetup& setup)
      : connection_(connection), record_(record), setup_(setup) {}

  void set_parameters(const segment::Parameters& parameters) noexcept {
    connection_.apply({.send_bytes = parameters.send_bytes,
                       .max_segment_bytes = parameters.max_segment_bytes,
                       .max_segments = parameters.max_segments,
                       .reverse = static_cast<rpcrdma::v2::ReverseSupport>(parameters.reverse)});
  }
  void admit(const HostName& host) noexcept { connection_.admit(host); }
  void set_grant(const segment::Grant& grant) noexcept {
    if (grant.client_class != segment::kKeepClass) connection_.set_client_class(grant.client_class);
    if (grant.credits == 0) return;
    // A draining connection keeps its single credit.
    if (record_.draining)
      record_.credits_after_drain = grant.credits;
    else
      connection_.set_credits(grant.credits);
  }
  void set_established() noexcept { setup_.mark_established(connection_); }
  void set_draining(bool on) noexcept {
    if (record_.draining == on) return;
    record_.draining = on;
    if (on) record_.credits_after_drain = static_cast<std::uint32_t>(connection_.responder().grant());
    connection_.set_credits(on ? 1 : record_.credits_after_drain);
  }
  void set_traced(bool on) noexcept { connection_.responder().set_traced(on); }
  void end(segment::End how, std::uint32_t reason) noexcept {
    switch (how) {
      case segment::End::No:
        return;
      case segment::End::PeerGone:
        return connection_.close(rpcrdma::CloseReason::PeerClosed);
      case segment::End::Disconnect:
        return setup_.disconnect(connection_, close_reason(reason));
    }
  }

 private:
  rpcrdma::Connection& connection_;
  ConnectionRecord& record_;
  ConnectionSetup& setup_;
};

}  // namespace

Reconciler::Reconciler(segment::ReactorArea& area, ConnectionTable& connections, ConnectionSetup& setup,
                       Publisher& publisher, Counters& counters)
    : area_(area), connections_(connections), setup_(setup), publisher_(publisher), counters_(counters) {}

bool Reconciler::poll() noexcept {
  bool any = false;
  std::uint32_t number = 0;
  for (std::size_t i = 0; i < kHintsPerPass && area_.wanted.hints.pop(number); ++i)
    if (rpcrdma::Connection* const connection = connections_.find_number(number)) any |= follow(*connection);
  return any;
}

void Reconciler::reconcile(rpcrdma::Connection& connection) noexcept {
  ConnectionRecord& record = connections_.record(connection);
  if (unattended_) {
    if (!record.unattended && !record.draining && !record.outgoing) restore_credits(connection);
  } else if (record.unattended) {
    record.unattended = false;
    record.followed.grant = 0;  // the desired grant is applied again, even if it has not changed
  }
  if (follow(connection)) ++counters_.wants_found;
}

void Reconciler::observe(std::uint64_t beats, std::uint64_t now_ns) noexcept {
  if (beats != beats_ || beat_ns_ == 0) {
    beats_ = beats;
    beat_ns_ = now_ns;
  }
  static_cast<void>(SLUICE_INVARIANT(now_ns >= beat_ns_, timer_state));
  unattended_ = now_ns - beat_ns_ >= segment::kHeartbeatTimeoutNs;
}

void Reconciler::restore_credits(rpcrdma::Connection& connection) noexcept {
  static_cast<void>(
      SLUICE_INVARIANT(connection.is_open() && !connections_.record(connection).outgoing, reactor_state));
  const std::uint32_t all = connection.config().credit_grant;
  connections_.record(connection).unattended = true;
  if (static_cast<std::uint32_t>(connection.responder().grant()) >= all) return;
  connection.set_credits(all);
  ++counters_.credits_restored;
  publisher_.publish_connection(connection);
}

bool Reconciler::follow(rpcrdma::Connection& connection) noexcept {
  const std::uint16_t number = connection.number();
  static_cast<void>(SLUICE_INVARIANT(number < area_.wanted.words.size(), table_index));
  ConnectionRecord& record = connections_.record(number);
  static_cast<void>(SLUICE_INVARIANT(record.incarnation != 0, reactor_state));
  const bool changed = segment::follow(area_.wanted, number, record.incarnation, record.followed,
                                       Changes(connection, record, setup_));
  if (!changed) return false;
  ++counters_.wants_followed;
  // The end of a closed connection is published when it is released.
  if (connection.is_open()) publisher_.publish_connection(connection);
  return true;
}

}  // namespace sluice::reactor
