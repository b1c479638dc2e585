// SPDX-License-Identifier: Apache-2.0
//
// sluice-controlplane: checks the configuration, owns the shared segment, admits connections, and serves the
// admin socket, Prometheus and MOUNT. It can be killed and restarted at any time without effect on
// connections.
#include <sched.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "cli/arguments.h"
#include "controlplane/control_plane.h"
#include "controlplane/events/kinds.h"
#include "controlplane/properties/host_handshake.h"
#include "dataplane/base/signals.h"
#include "dataplane/log/log.h"
#include "dataplane/segment/heartbeat.h"

namespace sluice::controlplane {
namespace {

/// Range of the wait for admin requests in each iteration. The wait is doubled after an iteration without
/// events.
constexpr int kMinWaitMs = 2;
constexpr int kMaxWaitMs = 16;

std::atomic<bool> stop_requested{false};
std::atomic<bool> reload_requested{false};
void on_signal(int number) {
  (number == SIGHUP ? reload_requested : stop_requested).store(true);
}

enum class Outcome { Stopped, NeedsNewProcess, TakenOver };

void log_reload(const admin::ReloadResult& result) {
  if (!result.problem.empty())
    log::error("The configuration was not reloaded, and the previous one stays in force: {}", result.problem);
  for (const auto* keys : {&result.changes.restart_control, &result.changes.restart_both})
    for (const std::string& key : *keys) log::warn("{} changes only with a restart", key);
}

Outcome run(config::Config config, const std::shared_ptr<LogQueue>& log) {
  ControlPlane plane(std::move(config), log);
  notify::ready();
  int wait_ms = kMinWaitMs;
  while (!stop_requested) {
    if (const std::string reason = plane.reason_for_new_process(); !reason.empty()) {
      log::warn("{}. The control plane restarts itself", reason);
      return Outcome::NeedsNewProcess;
    }
    const ControlPlane::Pass pass = plane.poll(wait_ms);
    if (pass == ControlPlane::Pass::NotOurs) {
      plane.journal().add(events::TakenOver{.process = plane.layout().control_plane.pid.load()});
      log::error(
          "Another control plane (process {}) has taken over segment '{}' while this one was not running. "
          "This one exits",
          plane.layout().control_plane.pid.load(), plane.config().segment);
      return Outcome::TakenOver;
    }
    wait_ms = pass == ControlPlane::Pass::Busy ? kMinWaitMs : std::min(2 * wait_ms, kMaxWaitMs);
    notify::alive();
    if (!reload_requested.exchange(false)) continue;
    plane.reload(log_reload);
  }
  notify::stopping();
  return Outcome::Stopped;
}

/// Reads the keys of hosts as a start does, and prints the notes. Returns the exit status. Throws
/// config::ConfigError.
int check_rest(const config::Config& config) {
  properties::configured_authentication(config);
  std::fprintf(stderr, "%s", config.notes.c_str());
  return 0;
}

}  // namespace
}  // namespace sluice::controlplane

int main(int argc, char** argv) {
  std::string file;
  bool check_only = false;
  sluice::cli::Program program(
      "The Sluice control plane: configuration, connections, administration, metrics, MOUNT.");
  program.command().option("--config", file, "Configuration file (TOML); default: the built-in defaults");
  program.command().flag("--check", check_only,
                         "Check the configuration file and exit, with status 0 if it has no defects, else 2");
  if (const auto ended = program.parse(argc, argv)) return *ended;
  sluice::ignore_meaningless_signals();
  for (const int number : {SIGTERM, SIGINT, SIGHUP}) ::signal(number, sluice::controlplane::on_signal);
  // The mask is read before the process moves off the processors of reactors.
  cpu_set_t cpus;
  const bool has_cpus = ::sched_getaffinity(0, sizeof cpus, &cpus) == 0;
  try {
    auto config = file.empty() ? sluice::config::defaults() : sluice::config::load_file(file);
    if (file.empty()) sluice::config::check_for_start(config);
    if (check_only) return sluice::controlplane::check_rest(config);
    const auto log = sluice::log_by_queue();
    if (!config.notes.empty()) sluice::log::warn("{}", config.notes);
    using sluice::controlplane::Outcome;
    const Outcome outcome = sluice::controlplane::run(config, log);
    if (outcome != Outcome::NeedsNewProcess) return outcome == Outcome::Stopped ? 0 : 1;
    log->drain(sluice::kLogEndMs);
    // The new process finds all required state in the segment.
    ::close_range(STDERR_FILENO + 1, ~0u, 0);
    if (has_cpus) ::sched_setaffinity(0, sizeof cpus, &cpus);
    ::signal(SIGHUP, SIG_IGN);  // until the new process handles it
    ::execv("/proc/self/exe", argv);
    sluice::log::error("The control plane cannot restart itself ({}). Start it again", std::strerror(errno));
    return 1;
  } catch (const sluice::config::ConfigError& error) {
    std::fprintf(stderr, "%s", error.what());
    return 2;
  } catch (const std::exception& error) {
    sluice::log::error("{}", error.what());
    return 1;
  }
}
