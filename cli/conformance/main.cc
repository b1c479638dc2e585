// SPDX-License-Identifier: Apache-2.0
//
// The program sluice-conformance: plays a client of RPC-over-RDMA against any server, or a server for any
// client, and judges the other side row by row.
#include <sys/random.h>

#include <cstdint>
#include <iostream>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "cli/arguments.h"
#include "cli/bench/device.h"
#include "cli/bench/mount_client.h"
#include "cli/conformance/link.h"
#include "cli/conformance/listen.h"
#include "cli/conformance/nfs.h"
#include "cli/conformance/run.h"
#include "cli/output.h"
#include "dataplane/base/small_algorithms.h"

namespace sluice::conformance {
namespace {

constexpr int kUsage = 2;
constexpr int kNotJudged = 3;  ///< no server, or the results could not be written

struct Options {
  bench::DeviceOptions device;
  std::uint16_t port = 20049;
  int version = 1;
  std::vector<std::string> rows;
  std::string mount_host, mount_path = "/export", handle;
  std::uint16_t mount_port = 0;
  double patience_s = 5;
  std::uint32_t quiet_ms = 50;
  std::string listen;
  ListenOptions client;
  bool strict = false, json = false, list = false, destructive = false;
};

std::vector<const Test*> chosen_tests(const Options& options) {
  const auto version = static_cast<std::uint32_t>(options.version);
  std::vector<const Test*> tests = options.listen.empty() ? tests_of(version) : client_tests(version);
  if (!options.destructive && !options.list)
    std::erase_if(tests, [](const Test* test) { return test->destructive; });
  if (options.rows.empty()) return tests;
  std::erase_if(tests, [&](const Test* test) {
    const auto rows = rows_of(*test);
    for (const std::string& wanted : options.rows)
      if (wanted == test->name || has_element(rows, wanted)) return false;
    return true;
  });
  return tests;
}

bool any_failed(const std::vector<Result>& results) {
  for (const Result& result : results)
    if (result.outcome == Outcome::Failed) return true;
  return false;
}

Bytes bytes_of_hex(const std::string& text) {
  if (text.size() % 2 != 0 || text.size() > 128 ||
      text.find_first_not_of("0123456789abcdefABCDEF") != std::string::npos)
    throw LinkError("--handle has to be a file handle in hexadecimal, of at most 64 bytes.");
  Bytes bytes;
  for (std::size_t at = 0; at < text.size(); at += 2)
    bytes.push_back(static_cast<std::byte>(std::stoul(text.substr(at, 2), nullptr, 16)));
  return bytes;
}

Bytes root_of(const Options& options) {
  if (!options.handle.empty()) return bytes_of_hex(options.handle);
  if (options.mount_port == 0) return {};
  return bench::mount_root(options.mount_host.empty() ? options.device.server : options.mount_host,
                           options.mount_port, options.mount_path);
}

/// Creates the file for the tests with version 1, which every server supports.
void prepare(Link& link, Target& target, const Limits& limits, std::uint32_t first_xid) {
  if (target.root.empty()) return;
  Trial trial(link, target, limits, first_xid);
  try {
    make_file(trial, target);
  } catch (const Failure& failure) {
    std::cerr << "The file for the tests cannot be created: " << failure.what() << '\n';
  }
}

int run(const Options& options, std::span<const Test* const> tests) {
  std::uint32_t seed = 0;
  if (::getrandom(&seed, sizeof seed, 0) != sizeof seed)
    throw LinkError("The system provides no random numbers.");
  Target target{.root = root_of(options), .file = {}, .name = "sluice-conformance." + std::to_string(seed)};
  bench::ToolDevice device = bench::open_device(options.device);
  Link link(*device.device, device.manager(), options.port);
  const Limits limits{.answer_ns = static_cast<std::uint64_t>(options.patience_s * 1e9),
                      .quiet_ns = std::uint64_t{options.quiet_ms} * 1'000'000};
  std::uint32_t first_xid = seed;
  prepare(link, target, limits, first_xid);
  std::vector<Result> results;
  if (!options.json) std::cout << "1.." << tests.size() << '\n';
  for (const Test* test : tests) {
    results.push_back(run_test(*test, link, target, limits, options.strict, first_xid += kXidsOfATest));
    if (!options.json) print_tap(std::cout, results.size(), results.back());
  }
  if (options.json) print_json(std::cout, results);
  try {
    Trial trial(link, target, limits, first_xid + kXidsOfATest);
    remove_file(trial, target);
  } catch (const Failure& failure) {
    std::cerr << "The file of the tests, " << target.name << ", is left over: " << failure.what() << '\n';
  }
  link.disconnect();
  return any_failed(results);
}

int report(const std::vector<Result>& results, bool json) {
  if (json) {
    print_json(std::cout, results);
  } else {
    std::cout << "1.." << results.size() << '\n';
    for (std::size_t i = 0; i < results.size(); ++i) print_tap(std::cout, i + 1, results[i]);
  }
  return any_failed(results);
}

int judge_client(Options options, std::span<const Test* const> tests) {
  options.device.address = options.listen;
  options.device.server = options.listen.substr(0, options.listen.find('/'));
  bench::ToolDevice device = bench::open_device(options.device);
  options.client.responder.port = options.port;
  options.client.responder.version = static_cast<std::uint32_t>(options.version);
  options.client.patience_s = options.patience_s;
  options.client.strict = options.strict;
  return report(listen(*device.device, device.manager(), options.client, tests, std::cerr), options.json);
}

int carry_out(const Options& options, std::span<const Test* const> tests) {
  if (options.list) return print_list(std::cout, tests), 0;
  return options.listen.empty() ? run(options, tests) : judge_client(options, tests);
}

void add_options(cli::Command& app, Options& options) {
  app.option("--device", options.device.driver, "RDMA driver")
      .one_of({"loopback", "softroce", "verbs"})
      .shows_default();
  app.option("--server", options.device.server, "Address of the server");
  app.option("--port", options.port, "Port of the server, or port to listen on").shows_default();
  app.option("--listen", options.listen,
             "Judge clients: local address to listen on; with softroce including the prefix length");
  app.option("--upstream", options.client.upstream,
             "--listen: NFS server over TCP that answers the calls, such as 127.0.0.1:2049 (default: only "
             "NULL is served)");
  app.flag("--calm", options.client.calm,
           "--listen: only check the messages of the client, without provocations");
  app.option("--first-calls", options.client.first_calls,
             "--listen: number of calls that are served before the first provocation")
      .shows_default();
  app.option("--fabric", options.device.fabric, "loopback: fabric of the server");
  app.option("--ethdev", options.device.ethdev, "softroce: DPDK vdev with its arguments, or PCI address");
  app.option("--address", options.device.address, "softroce: local address, with prefix length");
  app.option("--rdma-device", options.device.rdma_device,
             "verbs: RDMA device, such as mlx5_0 (default: the first usable one)");
  app.option("--cpu", options.device.cpu, "Processor to run on");
  app.option("--rpcrdma", options.version,
             "Version of RPC-over-RDMA to test; with --listen the latest version that is supported, which is "
             "judged")
      .one_of({1, 2})
      .shows_default();
  app.option("--row", options.rows,
             "Only tests of this row, such as V1-022, or of this name; may be repeated");
  app.option("--mount-host", options.mount_host, "Host of the MOUNT server over TCP (default: --server)");
  app.option("--mount-port", options.mount_port,
             "TCP port of the MOUNT server; without it and --handle, tests of NFS are skipped");
  app.option("--export", options.mount_path, "NFS version 3 export in which a file is created")
      .shows_default();
  app.option("--handle", options.handle, "File handle of a folder in hexadecimal, instead of MOUNT");
  app.option("--patience", options.patience_s, "Maximum wait for an answer, in seconds").shows_default();
  app.option("--quiet-ms", options.quiet_ms, "Wait for messages that must not arrive, in ms").shows_default();
  app.flag("--strict", options.strict, "Treat SHOULD and decisions like MUST");
  app.flag("--destructive", options.destructive,
           "Also run tests after which a server may be unusable; they come last");
  app.flag("--json", options.json, "Print JSON instead of TAP");
  app.flag("--list", options.list, "List the tests with their requirements, and count the rows");
}

}  // namespace
}  // namespace sluice::conformance

int main(int argc, char** argv) {
  using namespace sluice;
  conformance::Options options;
  cli::Program program("Judges an RPC-over-RDMA server or client by the requirements of the protocol.");
  conformance::add_options(program.command(), options);
  if (const auto ended = program.parse(argc, argv)) return *ended;
  try {
    const auto tests = conformance::chosen_tests(options);
    if (tests.empty()) {
      std::cerr << "No test has this --row, or it runs with --destructive only. See --list.\n";
      return conformance::kUsage;
    }
    return cli::finish_output(conformance::carry_out(options, tests), conformance::kNotJudged);
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return conformance::kNotJudged;
  }
}
