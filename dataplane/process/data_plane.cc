// SPDX-License-Identifier: Apache-2.0
#include "dataplane/process/data_plane.h"

#include <rte_launch.h>
#include <rte_lcore.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <optional>

#include "dataplane/process/clocks.h"
#include "dataplane/process/debug_anchor.h"
#include "dataplane/process/memory_table.h"
#include "dataplane/process/settings.h"
#include "dataplane/segment/capture_channel.h"
#include "dataplane/segment/notify.h"
#include "pmd/softroce/pools.h"

namespace sluice::process {
namespace {

constexpr std::chrono::milliseconds kBeatInterval{100};
// How often requests of the control plane are looked at between two beats.
constexpr int kPollsPerBeat = 5;
constexpr unsigned kBeatsPerMeasurement = 10;

}  // namespace

DataPlane::DataPlane(const segment::ConfigBlock& config, segment::Segment& segment)
    : config_(config),
      segment_(segment),
      layout_(segment.layout()),
      devices_(config),
      listener_(make_listener(config)) {
  set_wall_clock();
  const Core::Shared shared{.listener = listener_.get(), .caches = request_caches(config)};
  for (std::uint32_t i = 0; i < config.reactors; ++i)
    cores_.push_back(std::make_unique<Core>(config, i, devices_, shared, layout_, &tsc_ns));
  exports_ = std::make_unique<Exports>(config, *cores_[0], layout_, &wall_ns);
  for (std::uint32_t i = 1; i < config.reactors; ++i) exports_->lend_to(*cores_[i]);
  for (std::uint32_t i = 0; i < config.reactors; ++i) {
    cores_[i]->reactor.measure_calls();
    cores_[i]->engine.set_slow_calls(layout_.slow_calls[i], &wall_ns);
  }
  layout_.memory.write(memory_table(config));
}

void DataPlane::run(const StopSignal& stop, const LogQueue& log) {
  debug_anchor = this;
  CaptureService captures(layout_, segment::capture_socket_of(segment_.name()),
                          segment_.file(segment::Part::Control)->user(), devices_.port());
  std::optional<KeptConnections> kept;  // where connections are the kernel's
  if (config_.driver == segment::Driver::Verbs) kept.emplace(segment_);
  ProcessHeartbeat heartbeat(layout_, config_.reactors);
  launch_reactors();
  spdlog::info("Serving on port {} with {} reactor(s)", config_.port, config_.reactors);
  for (std::uint32_t i = 0; i < config_.upstream_count; ++i)
    if (const segment::UpstreamConfig& upstream = config_.upstreams[i]; upstream.listen_port != 0)
      spdlog::info("Upstream '{}' is served on port {}", upstream.name, upstream.listen_port);
  main_loop(heartbeat, kept ? &*kept : nullptr, stop, log);
  notify::stopping();
  for (auto& core : cores_) core->reactor.stop();
  rte_eal_mp_wait_lcore();
  rdma::softroce::leave_pools(true);
  debug_anchor = nullptr;
}

void DataPlane::launch_reactors() {
  unsigned lcore;
  std::size_t next = 0;
  RTE_LCORE_FOREACH_WORKER(lcore) {
    rte_eal_remote_launch(
        [](void* reactor) {
          static_cast<reactor::Reactor*>(reactor)->run();
          return 0;
        },
        &cores_[next++]->reactor, lcore);
  }
}

bool DataPlane::any_stopped() const {
  return std::any_of(cores_.begin(), cores_.end(), [](const auto& core) { return core->reactor.stopped(); });
}

/// Which reads as zeros then: as of a control plane that is not there.
void DataPlane::look_at_control_part() {
  if (control_part_cut_ || !segment_.was_cut(segment::Part::Control)) return;
  control_part_cut_ = true;
  spdlog::error(
      "The control plane's part of segment '{}' was cut short: calls of the connections that there are go "
      "on, others "
      "cannot be made. Stop both planes and start them again",
      segment_.name());
}

void DataPlane::main_loop(ProcessHeartbeat& heartbeat, KeptConnections* kept, const StopSignal& stop,
                          const LogQueue& log) {
  std::vector<Newcomers::Places> places(config_.upstream_places());
  for (std::uint32_t i = 0; i < places.size(); ++i)
    for (const auto& core : cores_)
      if (forward::UpstreamPlace* const place = core->place(i)) places[i].push_back(place);
  Newcomers newcomers(config_, std::move(places), layout_.upstream_places);
  const auto set_slow_call_ns = [this](std::uint64_t ns) {
    for (auto& core : cores_) core->engine.set_slow_call_ns(ns);
  };
  ConfigWatch config(layout_, exports_->update(), newcomers, set_slow_call_ns, config_);
  notify::ready();
  for (unsigned turn = 0; !stop.requested() && !any_stopped(); ++turn) {
    for (int i = 0; i < kPollsPerBeat && !stop.requested() && !any_stopped(); ++i) {
      stop.wait(kBeatInterval / kPollsPerBeat);
      config.poll();
    }
    devices_.poll_conditions();
    if (kept != nullptr) kept->poll();
    look_at_control_part();
    set_wall_clock();
    if (turn % kBeatsPerMeasurement == 0) {
      segment::measure_process(layout_.process);
      layout_.process.log_lines_lost.store(log.dropped(), std::memory_order_relaxed);
    }
    if (heartbeat.beat()) notify::alive();
  }
}

}  // namespace sluice::process
