// SPDX-License-Identifier: Apache-2.0
//
// The program sluice-card-check: tests an RDMA card for Sluice, and explains the report.
#include <chrono>
#include <iostream>
#include <optional>
#include <string>
#include <utility>

#include "cli/arguments.h"
#include "cli/card_check/child.h"
#include "cli/card_check/explain.h"
#include "cli/card_check/peer.h"
#include "cli/card_check/runner.h"
#include "cli/output.h"

namespace sluice::card_check {
namespace {

constexpr int kFailures = 1;
constexpr int kNotRun = 2;  ///< wrong use, no card, or a file that is no report
constexpr std::uint32_t kUnset = UINT32_MAX;

struct Options {
  bool statics = false, loopback = false, two_gids = false, peer = false;
  bool json = false, list = false;
  std::string device, test, report;
  std::uint32_t port = 0, gid = kUnset, limit_s = 600, test_limit_s = 45;
};

void add_options(cli::Command& app, Options& options) {
  app.flag("--static", options.statics, "Compare what the device reports with what it creates");
  app.flag("--loopback", options.loopback, "Test the data path over one port (default: with --static)");
  app.flag("--two-gids", options.two_gids,
           "Test the data path over a second GID of the port, such as its IPv6 address");
  app.flag("--peer", options.peer, "Print the commands that test the card with a second machine");
  app.option("--device", options.device, "RDMA device, such as mlx5_0 (default: the first usable one)");
  app.option("--port", options.port, "Port of the device (default: the first usable one)").from_to(0, 255);
  app.option("--gid", options.gid, "Index in the GID table of the port (default: the first usable one)");
  app.option("--test", options.test, "Run only tests that have this text in their names");
  app.option("--limit", options.limit_s, "Start no test after this many seconds").shows_default();
  app.option("--test-limit", options.test_limit_s, "Seconds after which a test is ended").shows_default();
  app.flag("--json", options.json, "Print JSON instead of TAP");
  app.flag("--list", options.list, "Print the names of the tests");
  app.option("--explain", options.report, "Read a report, and print which roles of Sluice work on its card");
}

Modes modes_of(const Options& options) {
  const bool chosen = options.statics || options.loopback || options.two_gids;
  return {.statics = options.statics || !chosen,
          .loopback = options.loopback || !chosen,
          .two_gids = options.two_gids};
}

int run_tests(const Options& options) {
  const auto start = std::chrono::steady_clock::now();
  std::vector<Case> cases = cases_of(modes_of(options), options.test);
  if (cases.empty()) {
    std::cerr << "No test has '" << options.test << "' in its name. --list prints the names.\n";
    return kNotRun;
  }
  Runner runner(
      {.device = options.device,
       .port = options.port,
       .gid = options.gid == kUnset ? std::nullopt : std::optional(options.gid)},
      std::move(cases),
      {.run = std::chrono::seconds(options.limit_s), .test = std::chrono::seconds(options.test_limit_s)});
  if (!options.json) write_tap_start(std::cout, runner.facts(), runner.tests());
  const bool whole = runner.run([&](std::size_t number, const Result& result) {
    if (options.json) return;
    write_tap_result(std::cout, number, result);
    cli::flush_output();
  });
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (options.json) write_json(std::cout, runner.report(), seconds);
  if (!whole) {
    std::cout << (options.json ? "" : "Bail out! A process of a test cannot be ended.\n");
    std::cerr << "A process of a test cannot be ended, because a system call of the device's driver does not "
                 "return. "
                 "Send the report with the kernel log.\n";
    return kFailures;
  }
  if (!options.json) write_tap_end(std::cout, runner.report(), seconds);
  return runner.report().count(Result::Outcome::Failed) == 0 ? 0 : kFailures;
}

int carry_out(const Options& options) {
  if (!options.report.empty()) return explain(std::cout, read_report(options.report)), 0;
  if (options.peer) return print_peer_commands(std::cout, options.device), 0;
  if (!options.list) return run_tests(options);
  for (const Case& one : cases_of(modes_of(options), options.test)) std::cout << one.name << '\n';
  return 0;
}

}  // namespace
}  // namespace sluice::card_check

int main(int argc, char** argv) {
  using namespace sluice;
  if (const auto ended = card_check::run_as_child(argc, argv)) return *ended;
  card_check::Options options;
  cli::Program program("Tests an RDMA card for Sluice. The report has no addresses; send it to the project.");
  card_check::add_options(program.command(), options);
  if (const auto ended = program.parse(argc, argv)) return *ended == 0 ? 0 : card_check::kNotRun;
  try {
    return cli::finish_output(card_check::carry_out(options), card_check::kNotRun);
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return card_check::kNotRun;
  }
}
