// SPDX-License-Identifier: Apache-2.0
#include "dataplane/reactor/reactor.h"

#include "dataplane/base/small_algorithms.h"
#include "dataplane/reactor/cpu.h"
#include "dataplane/reactor/idle.h"

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
      follower_(area_, connections_, setup_, publisher_, counters_),
      commands_(area_, setup_, dialer_, events_, counters_, clock),
      idle_(config.idle, engine.device(), clock) {
  engine.stages().measure(clock);
}

void Reactor::measure_calls() {
  engine_.measure(area_.calls, clock_);
  engine_.set_trace(area_.trace);
}

void Reactor::run() noexcept {
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
  const std::size_t completions =
      engine_.poll(now_ns_);  // RX: completions; calls that waited; TX: what was staged
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
  for (service::Handover* handover : lent_) busy |= handover->serve();        // RX: calls of other reactors
  for (service::Handover* handover : borrowed_) busy |= handover->collect();  // TX: answers of other reactors
  if (busy) engine_.stages().end(Stage::Services);
  return busy;
}

bool Reactor::poll_upstreams() noexcept {
  bool busy = false;
  for (service::Poller* poller : pollers_) busy |= poller->poll(now_ns_);  // RX, TX: TCP
  if (busy) engine_.stages().end(Stage::Upstreams);
  return busy;
}

/// Work off the message path, every kTurnsPerControlPass turns.
bool Reactor::control_pass() noexcept {
  StageTimes& stages = engine_.stages();
  now_ns_ = last_control_pass_ns_ = stages.end(Stage::Idle);  // what came last in this turn found nothing
  bool busy = setup_.poll();
  busy |= properties_.poll();
  busy |= commands_.poll();
  follower_.observe(layout_.control_plane.beats.load(std::memory_order_relaxed), now_ns_);
  busy |= follower_.poll();
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

/// A control plane that takes over gets what its predecessor left.
void Reactor::announce_requests() noexcept {
  const std::uint32_t epoch = layout_.reading_epoch.load(std::memory_order_acquire);
  if (epoch != control_plane_epoch_) {
    control_plane_epoch_ = epoch;
    ++counters_.control_plane_changes;
    connector_->forget_announcements();
  }
  connector_->announce();
}

/// Some of them each time, in turn.
void Reactor::check_connections() noexcept {
  const std::uint16_t count = connections_.size();
  for (std::uint32_t i = 0; i < smaller_of<std::uint32_t>(count, kConnectionsPerPass); ++i) {
    rpcrdma::Connection& connection = connections_.connection(next_checked_);
    next_checked_ =
        next_checked_ + 1 == count ? std::uint16_t{0} : static_cast<std::uint16_t>(next_checked_ + 1);
    if (!connection.is_open()) continue;
    follower_.look(connection);
    if (!connection.is_open()) continue;
    publisher_.publish_negotiation(connection);
    setup_.check_peer_ready(connection);
    publisher_.publish_use(connection);
    setup_.close_if_drained(connection);
  }
}

void Reactor::idle() noexcept {
  const bool only_device = pollers_.empty() && lent_.empty() && borrowed_.empty();
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
  const std::uint64_t idle_ns = now_ns - idle_since_ns_;
  const bool woken = only_device && device_.wakes();
  if (idle_ns < (woken ? kSpinBeforeWaitNs : kSpinBeforeSleepNs)) {
    cpu::pause();
    return false;
  }
  // Waiting as long as it has been idle: the wake-up then costs a small part of the time.
  device_.wait(woken ? smaller_of(idle_ns, kMaxWaitNs) : kSleepNs);
  return true;
}

}  // namespace sluice::reactor
