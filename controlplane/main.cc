// SPDX-License-Identifier: Apache-2.0
//
// sluice-controlplane: checks the configuration, owns the shared segment, admits connections, serves
// administrators, Prometheus and MOUNT. It may be killed and started again at any time: the data plane goes
// on.
#include <signal.h>
#include <spdlog/spdlog.h>
#include <sys/random.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <cstring>

#include "controlplane/admin/methods.h"
#include "controlplane/admin/server.h"
#include "controlplane/cm/connection_keeper.h"
#include "controlplane/config/config.h"
#include "controlplane/mount/mount_server.h"
#include "controlplane/properties/property_exchange.h"
#include "controlplane/properties/psk.h"
#include "controlplane/topology.h"
#include "dataplane/segment/segment.h"
#include "telemetry/exporter.h"

namespace sluice::controlplane {
namespace {

constexpr int kTickMs = 2;
constexpr std::uint64_t kReapIntervalNs = 500'000'000;

std::atomic<bool> stop_requested{false};
void on_signal(int) {
  stop_requested.store(true);
}

/// What the data plane already has stays what it has: the key of its file handles, above all.
void publish_config(segment::Layout& layout, config::Config& config) {
  const auto published = layout.config.read();
  if (published && published->generation > 0) {
    config.block.handle_key = published->handle_key;
    config.block.generation = published->generation + 1;
  } else {
    if (::getrandom(config.block.handle_key.data(), config.block.handle_key.size(), 0) !=
        static_cast<ssize_t>(config.block.handle_key.size()))
      throw rdma::SetupError("Cannot get random bytes for the key of file handles.");
    config.block.generation = 1;
  }
  layout.config.write(config.block);
}

bool allowed(const segment::ExportConfig& entry, const rdma::PeerAddress& client) {
  if (entry.allowed_count == 0) return true;
  for (std::uint32_t i = 0; i < entry.allowed_count; ++i)
    if (client.within(entry.allowed[i].address, entry.allowed[i].prefix_bits)) return true;
  return false;
}

mount::Exports mount_exports(segment::Layout& layout, const config::Config& config) {
  mount::Exports exports;
  exports.list = [&config] {
    std::vector<std::string> paths;
    for (std::uint32_t i = 0; i < config.block.export_count; ++i)
      paths.emplace_back(config.block.exports[i].path);
    return paths;
  };
  exports.mount = [&layout, &config](const std::string& path,
                                     const rdma::PeerAddress& client) -> mount::MountAnswer {
    for (std::uint32_t i = 0; i < config.block.export_count; ++i) {
      if (path != config.block.exports[i].path) continue;
      if (!allowed(config.block.exports[i], client)) return {mount::MountStatus::Acces, {}};
      const auto info = layout.exports[i].read();
      if (!info || info->in_use == 0 || info->root_handle_bytes > segment::kMaxHandleBytes)
        return {mount::MountStatus::ServerFault, {}};
      return {mount::MountStatus::Ok, {info->root_handle, info->root_handle + info->root_handle_bytes}};
    }
    return {mount::MountStatus::NoEnt, {}};
  };
  return exports;
}

properties::PropertyExchange::HandshakeFactory handshakes(const config::Config& config) {
  if (config.authentication_method == "none") return {};
  const properties::PskIdentity identity{config.authentication_name,
                                         properties::read_key_file(config.authentication_key_file)};
  return [identity] {
    return std::make_unique<properties::PskHandshake>(properties::PskHandshake::Role::Server, identity);
  };
}

int run(config::Config config) {
  spdlog::set_level(spdlog::level::from_str(config.log_level));
  if (config.choose_cpus) {
    const auto chosen = topology::choose(topology::processors(), config.block.reactors);
    for (std::size_t i = 0; i < chosen.size(); ++i) {
      config.block.cpus[i] = chosen[i].cpu;
      config.block.numa_nodes[i] = chosen[i].numa_node;
    }
  }
  const auto segment = segment::Segment::open_or_create(config.segment);
  segment::Layout& layout = segment->layout();
  if (segment::alive(layout.control_plane, segment::monotonic_ns()))
    throw rdma::SetupError("Another control plane (process " +
                           std::to_string(layout.control_plane.pid.load()) + ") owns segment '" +
                           config.segment + "': stop it first, or set another segment name.");
  publish_config(layout, config);

  cm::ConnectionKeeper keeper(layout, config);
  keeper.rebuild();
  properties::PropertyExchange exchange(layout, config, handshakes(config));
  admin::Server admin(config.admin_socket);
  admin::add_methods(admin, layout, config, keeper);
  std::unique_ptr<telemetry::Exporter> exporter;
  if (!config.metrics_address.empty())
    exporter = std::make_unique<telemetry::Exporter>(config.metrics_address, layout, config.block.reactors);
  std::unique_ptr<mount::MountServer> mount;
  if (config.mount_enabled) {
    mount = std::make_unique<mount::MountServer>(config.mount_port, config.mount_rpcbind,
                                                 mount_exports(layout, config));
    spdlog::info("MOUNT on port {}{}", mount->port(), mount->registered() ? ", registered with rpcbind" : "");
  }
  segment::start_heartbeat(layout.control_plane, segment::monotonic_ns(), segment::wall_ns());
  spdlog::info("Control plane of segment '{}' is up{}", config.segment,
               keeper.connections() > 0
                   ? ", with " + std::to_string(keeper.connections()) + " connections taken over"
                   : "");

  std::uint32_t data_plane_pid = layout.data_plane.pid.load();
  bool data_plane_alive = segment::alive(layout.data_plane, segment::monotonic_ns());
  std::uint64_t reaped_ns = 0;
  while (!stop_requested) {
    admin.poll(kTickMs);
    const std::uint64_t now = segment::monotonic_ns();
    segment::beat(layout.control_plane, now);
    keeper.poll(now);
    exchange.poll(now);
    if (now - reaped_ns < kReapIntervalNs) continue;
    reaped_ns = now;
    keeper.reap();
    const bool alive = segment::alive(layout.data_plane, now);
    const std::uint32_t pid = layout.data_plane.pid.load();
    if (alive && (!data_plane_alive || pid != data_plane_pid)) {
      keeper.rebuild();
      spdlog::info("Data plane (process {}) is up", pid);
    } else if (!alive && data_plane_alive) {
      spdlog::error("The data plane (process {}) does not beat any more: start sluice-dataplane again",
                    data_plane_pid);
    }
    data_plane_alive = alive;
    data_plane_pid = pid;
  }
  layout.control_plane.pid = 0;
  return 0;
}

}  // namespace
}  // namespace sluice::controlplane

int main(int argc, char** argv) {
  std::string file;
  bool check_only = false;
  CLI::App app{"The Sluice control plane: configuration, connections, administration, metrics, MOUNT."};
  app.add_option("--config", file, "Configuration file (TOML); without it the built-in defaults hold");
  app.add_flag("--check", check_only, "Check the configuration file and end");
  CLI11_PARSE(app, argc, argv);
  ::signal(SIGTERM, sluice::controlplane::on_signal);
  ::signal(SIGINT, sluice::controlplane::on_signal);
  try {
    const auto config = file.empty() ? sluice::config::defaults() : sluice::config::load_file(file);
    if (check_only) return 0;
    return sluice::controlplane::run(config);
  } catch (const sluice::config::ConfigError& error) {
    std::fprintf(stderr, "%s", error.what());
    return 2;
  } catch (const std::exception& error) {
    spdlog::error("{}", error.what());
    return 1;
  }
}
