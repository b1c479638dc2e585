// SPDX-License-Identifier: Apache-2.0
//
// sluice-dataplane: waits for a configuration in the shared segment, builds everything there will ever be,
// and polls.
#include <rte_version.h>
#include <spdlog/spdlog.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <string>

#include "cli/arguments.h"
#include "dataplane/base/setup_error.h"
#include "dataplane/process/config_watch.h"
#include "dataplane/process/data_plane.h"
#include "dataplane/process/eal.h"
#include "dataplane/segment/ownership.h"

namespace sluice::process {
namespace {

std::atomic<bool> stop_requested{false};

struct Options {
  std::string segment = "sluice";
  unsigned wait_seconds = 30;
};

void serve(const Options& options) {
  segment::ConfigBlock config;
  const auto segment = wait_for_configuration(options.segment, std::chrono::seconds(options.wait_seconds),
                                              stop_requested, config);
  const segment::DataPlaneOwnership ownership(*segment);
  start_eal(config, options.segment);
  DataPlane(config, segment->layout()).run(stop_requested, segment::capture_socket_of(options.segment));
  spdlog::info("Stopped");
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
      .option("--wait", options.wait_seconds, "Seconds to wait for the control plane")
      .shows_default();
  if (const auto ended = program.parse(argc, argv)) return *ended;
  for (const int signal : {SIGTERM, SIGINT}) std::signal(signal, [](int) { process::stop_requested = true; });
  try {
    process::serve(options);
    return 0;
  } catch (const std::exception& error) {
    spdlog::error("{}", error.what());
    return 1;
  }
}
