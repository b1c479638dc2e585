// SPDX-License-Identifier: Apache-2.0
//
// sluice-controlplane: checks the configuration, owns the shared segment, admits connections, serves
// administrators, Prometheus and MOUNT. It may be killed and started again at any time: the data plane goes
// on.
#include <signal.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "cli/arguments.h"
#include "controlplane/control_plane.h"
#include "dataplane/segment/notify.h"

namespace sluice::controlplane {
namespace {

/// A turn that finds nothing makes the next one later.
constexpr int kShortestTickMs = 2;
constexpr int kLongestTickMs = 16;

std::atomic<bool> stop_requested{false};
std::atomic<bool> reload_requested{false};
void on_signal(int number) {
  (number == SIGHUP ? reload_requested : stop_requested).store(true);
}

enum class Outcome { Stopped, WantsNewProcess };

Outcome run(config::Config config) {
  ControlPlane plane(std::move(config));
  notify::ready();
  int tick_ms = kShortestTickMs;
  while (!stop_requested) {
    if (plane.keeper().wants_new_process()) return Outcome::WantsNewProcess;
    tick_ms = plane.poll(tick_ms) ? kShortestTickMs : std::min(2 * tick_ms, kLongestTickMs);
    notify::alive();
    if (!reload_requested.exchange(false)) continue;
    try {
      const config::Changes changes = plane.reload();
      for (const auto* keys : {&changes.restart_control, &changes.restart_both})
        for (const std::string& key : *keys) spdlog::warn("{} wants a restart to change", key);
    } catch (const std::exception& error) {
      spdlog::error("The configuration was not reloaded, the old one stays in force: {}", error.what());
    }
  }
  notify::stopping();
  return Outcome::Stopped;
}

}  // namespace
}  // namespace sluice::controlplane

int main(int argc, char** argv) {
  std::string file;
  bool check_only = false;
  sluice::cli::Program program(
      "The Sluice control plane: configuration, connections, administration, metrics, MOUNT.");
  program.command().option("--config", file,
                           "Configuration file (TOML); without it the built-in defaults hold");
  program.command().flag("--check", check_only, "Check the configuration file and end");
  if (const auto ended = program.parse(argc, argv)) return *ended;
  for (const int number : {SIGTERM, SIGINT, SIGHUP}) ::signal(number, sluice::controlplane::on_signal);
  try {
    const auto config = file.empty() ? sluice::config::defaults() : sluice::config::load_file(file);
    if (check_only) return 0;
    using sluice::controlplane::Outcome;
    if (sluice::controlplane::run(config) == Outcome::Stopped) return 0;
    // What it has to know is in the segment.
    spdlog::warn("An RDMA device is being taken away: the control plane starts anew, to let go of it");
    ::close_range(STDERR_FILENO + 1, ~0u, 0);
    ::execv("/proc/self/exe", argv);
    spdlog::error("The control plane cannot start itself anew ({}): start it again", std::strerror(errno));
    return 1;
  } catch (const sluice::config::ConfigError& error) {
    std::fprintf(stderr, "%s", error.what());
    return 2;
  } catch (const std::exception& error) {
    spdlog::error("{}", error.what());
    return 1;
  }
}
