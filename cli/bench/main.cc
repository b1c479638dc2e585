// SPDX-License-Identifier: Apache-2.0
//
// The program sluice-bench: probes a server and runs load against it.
#include <unistd.h>

#include <cstdio>
#include <iostream>
#include <string>

#include "cli/arguments.h"
#include "cli/bench/bulk_load.h"
#include "cli/bench/client.h"
#include "cli/bench/device.h"
#include "cli/bench/mount_client.h"
#include "cli/bench/nfs3_load.h"
#include "cli/output.h"
#include "controlplane/json/json.h"
#include "dataplane/base/small_algorithms.h"
#include "dataplane/service/api/null.h"

namespace sluice::bench {
namespace {

struct Options {
  DeviceOptions device;
  ClientConfig client;
  LoadConfig load;
  BulkConfig bulk;
  std::string mount_host = "127.0.0.1";
  std::uint16_t mount_port = 20048;
  std::string path = "/export";
  std::string mix = "getattr=40,lookup=20,read=30,write=10";
  std::uint32_t file_mib = 16;
  bool as_json = false;
};

void progress_line(const LoadResult& result) {
  const double mb = static_cast<double>(result.bytes_read + result.bytes_written) / 1e6;
  std::fprintf(stderr, "\r%6.1f s  %10.0f ops/s  %8.1f MB/s  %llu errors ", result.seconds,
               static_cast<double>(result.operations) / result.seconds, mb / result.seconds,
               static_cast<unsigned long long>(result.errors));
}

Json report(const LoadResult& result, const segment::Histogram& latency) {
  const double seconds = larger_of(result.seconds, 1e-9);
  Json by_operation;
  for (std::size_t i = 0; i < kOperations; ++i)
    if (result.by_operation[i] > 0)
      by_operation[to_string(static_cast<Operation>(i))] = result.by_operation[i];
  return {{"seconds", seconds},
          {"operations", result.operations},
          {"operations_per_s", static_cast<double>(result.operations) / seconds},
          {"read_MB_per_s", static_cast<double>(result.bytes_read) / 1e6 / seconds},
          {"write_MB_per_s", static_cast<double>(result.bytes_written) / 1e6 / seconds},
          {"by_operation", by_operation},
          {"errors", result.errors},
          {"verified_bytes", result.verified_bytes},
          {"mismatches", result.mismatches},
          {"latency_us",
           {{"p50", static_cast<double>(latency.percentile(0.50)) / 1e3},
            {"p90", static_cast<double>(latency.percentile(0.90)) / 1e3},
            {"p99", static_cast<double>(latency.percentile(0.99)) / 1e3},
            {"p99.9", static_cast<double>(latency.percentile(0.999)) / 1e3}}}};
}

void print_report(const Json& r) {
  std::printf("%.0f ops in %.2f s: %.0f ops/s, read %.1f MB/s, write %.1f MB/s\n",
              r["operations"].get<double>(), r["seconds"].get<double>(), r["operations_per_s"].get<double>(),
              r["read_MB_per_s"].get<double>(), r["write_MB_per_s"].get<double>());
  const Json& l = r["latency_us"];
  std::printf("latency in us: p50 %.2f  p90 %.2f  p99 %.2f  p99.9 %.2f\n", l["p50"].get<double>(),
              l["p90"].get<double>(), l["p99"].get<double>(), l["p99.9"].get<double>());
  std::printf("errors %llu", static_cast<unsigned long long>(r["errors"].get<std::uint64_t>()));
  if (r["verified_bytes"].get<std::uint64_t>() > 0)
    std::printf(", %.1f MB verified, %llu blocks differ", r["verified_bytes"].get<double>() / 1e6,
                static_cast<unsigned long long>(r["mismatches"].get<std::uint64_t>()));
  std::printf("\n");
}

void parse_mix(const std::string& text, LoadConfig& load) {
  for (std::size_t from = 0; from < text.size();) {
    const std::string part = text.substr(from, text.find(',', from) - from);
    from += part.size() + 1;
    const auto equals = part.find('=');
    bool known = false;
    for (std::size_t i = 0; i < kOperations && equals != std::string::npos; ++i) {
      if (part.substr(0, equals) != to_string(static_cast<Operation>(i))) continue;
      load.weights[i] = static_cast<std::uint32_t>(std::stoul(part.substr(equals + 1)));
      known = true;
    }
    if (!known)
      throw ClientError(
          "--mix requires NAME=WEIGHT of null, getattr, lookup, read, write, separated by commas.");
  }
}

int run_load(ToolDevice& device, Options& options, bool nfs) {
  Client client(*device.device, device.manager(), options.client);
  Handle root;
  if (nfs) root = mount_root(options.mount_host, options.mount_port, options.path);
  Load load(client, options.load, options.client.depth, root);
  load.prepare();
  const bool live = ::isatty(STDERR_FILENO) != 0;
  const LoadResult result = load.run(live ? &progress_line : nullptr);
  if (live) std::fprintf(stderr, "\n");
  load.clean_up();
  const Json r = report(result, load.latency());
  if (options.as_json)
    std::cout << r.dump(2) << '\n';
  else
    print_report(r);
  return result.errors + result.mismatches == 0 ? 0 : 1;
}

int bulk_load(ToolDevice& device, Options& options) {
  Client client(*device.device, device.manager(), options.client);
  options.bulk.depth = options.client.depth;
  options.bulk.seconds = options.load.seconds;
  const BulkResult result = run_bulk(client, options.bulk);
  const double per_s = static_cast<double>(result.operations) / larger_of(result.seconds, 1e-9);
  const Json r = {{"seconds", result.seconds},
                  {"operations", result.operations},
                  {"operations_per_s", per_s},
                  {"errors", result.errors}};
  if (options.as_json)
    std::cout << r.dump(2) << '\n';
  else
    std::printf("%.0f ops in %.2f s: %.0f ops/s\nerrors %llu\n", static_cast<double>(result.operations),
                result.seconds, per_s, static_cast<unsigned long long>(result.errors));
  return result.errors == 0 ? 0 : 1;
}

Json parameters(const rpcrdma::v2::Parameters& p) {
  return {{"max_send_bytes", p.max_send_bytes},
          {"receive_buffer_bytes", p.receive_buffer_bytes},
          {"max_segment_bytes", p.max_segment_bytes},
          {"max_segments", p.max_segments},
          {"reverse_support", static_cast<std::uint32_t>(p.reverse)}};
}

int probe(ToolDevice& device, const Options& options) {
  Client client(*device.device, device.manager(), options.client);
  const std::uint64_t begin = now_ns();
  const CallBuilder null(service::kNullProgram, service::kNullVersion, 0, false);
  const Client::Answer answer = client.call({.payload = null.message(), .max_reply_bytes = 64});
  const Session& session = client.sessions()[0];
  const rpcrdma::Connection& connection = *session.connection;
  Json r = {{"version", connection.version()},
            {"answer", to_string(answer.status)},
            {"round_trip_us", static_cast<double>(now_ns() - begin) / 1e3},
            {"credits_requested", session.connection->config().credits_requested},
            {"credits_granted", static_cast<std::uint32_t>(session.requester->granted())},
            {"send_inline_bytes", connection.send_bytes()},
            {"receive_inline_bytes", session.connection->config().receive_inline_bytes},
            {"private_data", nullptr}};
  if (session.peer)
    r["private_data"] = {{"remote_invalidation", session.peer->remote_invalidation},
                         {"send_bytes", session.peer->send_bytes},
                         {"receive_bytes", session.peer->receive_bytes}};
  if (connection.speaks_version_2()) {
    const rpcrdma::v2::FlowControl& flow = connection.flow_control();
    r.erase("credits_requested");
    r["credits_granted"] = flow.balance();
    r["window"] = flow.window();
    r["server_window"] = flow.peer_limit();
    r["properties"] = parameters(connection.own_parameters());
    r["server_properties"] =
        connection.heard_properties() ? parameters(connection.peer_parameters()) : Json(nullptr);
  }
  if (options.as_json) {
    std::cout << r.dump(2) << '\n';
  } else {
    for (const auto& [key, value] : r.items()) std::cout << key << ": " << value.dump() << '\n';
  }
  return answer.status == rpcrdma::CallStatus::Ok ? 0 : 1;
}

void add_device_options(cli::Command& app, DeviceOptions& device) {
  app.option("--device", device.driver, "RDMA driver")
      .shows_default()
      .one_of({"loopback", "softroce", "verbs"});
  app.option("--fabric", device.fabric, "loopback: fabric of the server").shows_default();
  app.option("--ethdev", device.ethdev, "softroce: DPDK vdev with its arguments, or PCI address");
  app.option("--address", device.address, "softroce: local address, with prefix length");
  app.option("--server", device.server, "softroce, verbs: address of the server; fe80::1%eth0 with verbs");
  app.option("--rdma-device", device.rdma_device, "verbs: RDMA device (default: the first usable one)");
  app.flag("--no-memory-windows", device.no_memory_windows,
           "verbs: register a region for each segment of a call, as on a device without memory windows");
  app.option("--mtu", device.mtu, "softroce: size of an IP packet on the link, in bytes")
      .shows_default()
      .from_to(512, 9000);
  app.option(
      "--cpu", device.cpu,
      "Processor to run on (default: the first permitted one, because reactors begin with the second)");
}

void add_load_options(cli::Command& app, Options& options) {
  app.option("--port", options.client.port, "Port of the service").shows_default();
  app.option("--connections", options.client.connections, "Connections").shows_default().from_to(1, 32);
  app.option("--depth", options.client.depth, "Calls outstanding on each connection")
      .shows_default()
      .from_to(1, 512);
  app.option("--inline", options.client.inline_bytes, "Largest message without RDMA Read or Write")
      .shows_default()
      .from_to(1024, 65536);
  app.option("--rpcrdma", options.client.version,
             "Version of RPC-over-RDMA; 2 falls back to 1 if the server supports no other")
      .shows_default()
      .one_of({1, 2});
  app.option("--psk", options.client.psk_files,
             "Version 2: file with a key for host authentication; may be repeated, the preferred one first");
  app.option("--host-name", options.client.host_name, "Version 2: name of the host that owns the keys")
      .shows_default();
  app.option("--seconds", options.load.seconds, "Duration").shows_default();
  app.option("--operations", options.load.max_operations,
             "Stop after this many operations (0: limited only by the duration)");
  app.option("--rate", options.load.calls_per_s,
             "null, nfs3: maximum calls per second over all connections (0: unlimited)");
  app.flag("--json", options.as_json, "Print JSON");
}

void add_bulk_options(cli::Command& bulk, BulkConfig& config) {
  bulk.option("--call-bytes", config.call_bytes, "Size of each call's arguments, in bytes")
      .shows_default()
      .from_to(0, 65536);
  bulk.option("--reply-bytes", config.reply_bytes, "Size of each reply's results, in bytes")
      .shows_default()
      .from_to(0, 65536);
}

void add_nfs3_options(cli::Command& nfs3, Options& options) {
  nfs3.option("--mix", options.mix, "Operations as NAME=WEIGHT,... (null, getattr, lookup, read, write)")
      .shows_default();
  nfs3.option("--block", options.load.block_bytes, "Size of each READ and WRITE, in bytes")
      .shows_default()
      .from_to(1, 1 << 20);
  nfs3.option("--file-mib", options.file_mib, "Size of the file, in MiB").shows_default().from_to(1, 65536);
  nfs3.option("--seed", options.load.seed, "Seed of the content and the order").shows_default();
  nfs3.flag("--verify", options.load.verify, "Compare the data of each READ with what was written");
  nfs3.option("--mount-host", options.mount_host, "MOUNT server").shows_default();
  nfs3.option("--mount-port", options.mount_port, "TCP port of the MOUNT server").shows_default();
  nfs3.option("--path", options.path, "Path of the export").shows_default();
}

}  // namespace
}  // namespace sluice::bench

int main(int argc, char** argv) {
  using namespace sluice;
  bench::Options options;
  cli::Program program("Probes an RPC-over-RDMA server and runs load against it.");
  cli::Command& app = program.command();
  app.requires_subcommand();
  app.options_fall_through();
  bench::add_device_options(app, options.device);
  bench::add_load_options(app, options);
  cli::Command probe = app.subcommand("probe", "Connect, call NULL, and show the negotiated values");
  cli::Command null = app.subcommand("null", "Run NULL calls");
  cli::Command bulk =
      app.subcommand("bulk", "Run calls and replies of a given size, without DDP-eligible items");
  bench::add_bulk_options(bulk, options.bulk);
  cli::Command nfs3 = app.subcommand("nfs3", "Run NFSv3 calls on a new file");
  bench::add_nfs3_options(nfs3, options);
  if (const auto ended = program.parse(argc, argv)) return *ended;
  options.load.file_bytes = std::uint64_t{options.file_mib} << 20;
  const auto carry_out = [&] {
    bench::ToolDevice device = bench::open_device(options.device);
    if (probe.chosen()) return bench::probe(device, options);
    if (bulk.chosen()) return bench::bulk_load(device, options);
    if (null.chosen())
      options.load.weights[0] = 1;
    else
      bench::parse_mix(options.mix, options.load);
    return bench::run_load(device, options, nfs3.chosen());
  };
  try {
    return cli::finish_output(carry_out(), 3);
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 3;
  }
}
