// SPDX-License-Identifier: Apache-2.0
//
// sluice-dataplane: waits for a configuration in the shared segment, builds all objects at start, and polls.
#include <rte_version.h>

#include <chrono>
#include <csignal>
#include <optional>
#include <string>
#include <utility>

#include "cli/arguments.h"
#include "dataplane/base/processor_list.h"
#include "dataplane/base/setup_error.h"
#include "dataplane/base/signals.h"
#include "dataplane/log/log.h"
#include "dataplane/log/log_queue.h"
#include "dataplane/process/data_plane.h"
#include "dataplane/process/memory_table.h"
#include "dataplane/process/start.h"

namespace sluice::process {
namespace {

/// Shutdown request for the signal handlers.
StopSignal* stop_signal = nullptr;

struct Options {
  std::string segment = "sluice";
  unsigned wait_seconds = 30;
};

void serve(const Options& options, StopSignal& stop, const LogQueue& log) {
  const Start start = wait_for_start(options.segment, std::chrono::seconds(options.wait_seconds), stop);
  place_reactors(*start.config, own_processors());
  if (const std::string lack = require_memory(*start.config); !lack.empty()) log::warn("{}", lack);
  std::optional<StartExtension> extension(std::in_place);
  start_eal(*start.config, options.segment);
  DataPlane plane(*start.config, *start.segment);
  extension.reset();
  plane.run(stop, log);
  log::info("Stopped");
}

}  // namespace
}  // namespace sluice::process

int main(int argc, char** argv) {
  using namespace sluice;
  process::Options options;
  cli::Program program(
      "The Sluice data plane. Its configuration comes from sluice-controlplane, through shared memory.",
      rte_version());
  program.command().option("--segment", options.segment, "Name of the shared memory segment").shows_default();
  program.command()
      .option("--wait", options.wait_seconds, "Maximum time to wait for the control plane, in seconds")
      .shows_default();
  if (const auto ended = program.parse(argc, argv)) return *ended;
  ignore_meaningless_signals();
  const auto log = log_by_queue();
  try {
    static StopSignal stop;
    process::stop_signal = &stop;
    for (const int signal : {SIGTERM, SIGINT})
      std::signal(signal, [](int) { process::stop_signal->request(); });
    // SIGHUP comes from a closed terminal, a dropped ssh session, or a `pkill -HUP` that is meant for the
    // control plane.
    std::signal(SIGHUP, [](int) { process::stop_signal->hang_up(); });
    process::serve(options, stop, *log);
    return 0;
  } catch (const std::exception& error) {
    log::error("{}", error.what());
    return 1;
  }
}
