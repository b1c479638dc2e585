// SPDX-License-Identifier: Apache-2.0
#include "dataplane/process/settings.h"

#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "dataplane/base/pool_size.h"
#include "dataplane/base/setup_error.h"
#include "dataplane/base/small_algorithms.h"
#include "dataplane/gateway/rdma_upstream/relay.h"
#include "dataplane/gateway/tcp_clients/reverse_gateway.h"
#include "dataplane/gateway/tcp_upstream/upstreams.h"
#include "dataplane/log/log.h"
#include "dataplane/process/devices.h"
#include "dataplane/reactor/config.h"
#include "dataplane/rpcrdma/engine.h"
#include "dataplane/service/memory/memory_service.h"
#include "dataplane/tcp/sockets.h"
#include "dataplane/ulb/bindings.h"
#include "pmd/loopback/fabric.h"
#include "pmd/loopback/loopback.h"
#include "pmd/softroce/softroce.h"
#include "pmd/verbs/verbs.h"

namespace sluice::process {
namespace {

static_assert(segment::kMaxExports == service::memory::kMaxExports);

service::Withheld withheld(const segment::WithheldConfig& from) {
  return {.pnfs = from.pnfs != 0, .referrals = from.referrals != 0};
}

}  // namespace

gateway::UpstreamSettings upstream_settings(const segment::UpstreamConfig& from) {
  gateway::UpstreamSettings settings{.name = from.name,
                                     .transport = from.transport,
                                     .port = static_cast<std::uint16_t>(from.port),
                                     .connections = from.connections,
                                     .call_timeout_ns = std::uint64_t{from.call_timeout_s} * 1'000'000'000,
                                     .privileged_port = from.privileged_port != 0,
                                     .withheld = withheld(from.withheld),
                                     .handle_tag = from.handle_tag,
                                     .listen_port = static_cast<std::uint16_t>(from.listen_port)};
  settings.route_count = smaller_of(from.route_count, segment::kMaxRoutes);
  for (std::uint32_t r = 0; r < settings.route_count; ++r)
    settings.routes[r] = {from.routes[r].program, from.routes[r].version};
  return settings;
}

std::vector<service::memory::ExportOptions> export_options(const segment::ConfigBlock& config) {
  std::vector<service::memory::ExportOptions> exports;
  std::size_t places = config.exports.size();
  while (places > 0 && config.exports[places - 1].in_use == 0) --places;
  for (std::size_t i = 0; i < places; ++i) {
    const segment::ExportConfig& from = config.exports[i];
    service::memory::ExportOptions options{.path = from.path,
                                           .in_use = from.in_use != 0,
                                           .read_only = from.read_only != 0,
                                           .root_squash = from.root_squash != 0,
                                           .all_squash = from.all_squash != 0,
                                           .anonuid = from.anonuid,
                                           .anongid = from.anongid,
                                           .quota_bytes = from.quota_bytes,
                                           .allowed = {},
                                           .hosts = {}};
    for (std::uint32_t a = 0; a < smaller_of(from.allowed_count, segment::kMaxAllowed); ++a)
      options.allowed.push_back({from.allowed[a].address, from.allowed[a].prefix_bits});
    const auto hosts = from.hosts.begin();
    options.hosts.assign(hosts, hosts + smaller_of(from.host_count, segment::kMaxExportHosts));
    exports.push_back(std::move(options));
  }
  return exports;
}

service::memory::MemoryServiceConfig memory_config(const segment::ConfigBlock& config) {
  return {.max_files = config.max_files,
          .max_io_bytes = config.max_io_bytes(),
          .handle_key = config.handle_key,
          .exports = export_options(config)};
}

reactor::DialConfig dial_config(const segment::ConfigBlock& config) {
  return {.inline_bytes = config.inline_bytes,
          .call_backs = smaller_of<std::uint32_t>(rdma_server::kMaxServerCalls, config.credits)};
}

tcp_clients::ReverseGatewayConfig reverse_gateway_config(const segment::ConfigBlock& config) {
  const segment::ReverseConfig& from = config.reverse;
  return {.allowed = {from.allowed.begin(), from.allowed.begin() + from.allowed_count},
          .privileged_clients = from.privileged_clients != 0,
          .clients = from.clients,
          .server = {.address = from.server,
                     .port = static_cast<std::uint16_t>(from.server_port),
                     .credits_requested = from.calls},
          .server_side = {.connections = from.connections,
                          .calls = from.calls,
                          .inline_bytes = config.inline_bytes,
                          .record_buffers = require_pool("[reverse] record_buffers", from.record_buffers,
                                                         {{"a long call", 1}, {"its reply", 1}}),
                          .item_buffers = from.item_buffers,
                          .max_io_bytes = config.max_io_bytes(),
                          .pool_segment_bytes = config.copied_segment_bytes(),
                          .call_timeout_ns = std::uint64_t{from.call_timeout_s} * 1'000'000'000,
                          .withheld = withheld(from.withheld)}};
}

Owned<tcp_clients::Listener> make_listener(const segment::ConfigBlock& config) {
  const segment::ReverseConfig& from = config.reverse;
  if (from.in_use == 0) return nullptr;
  sockaddr_storage address{};
  const socklen_t bytes =
      tcp::socket_address(from.listen_address, static_cast<std::uint16_t>(from.listen_port), address);
  return make_owned<tcp_clients::Listener>(address, bytes);
}

tcp_upstream::DuplicateRequestCaches request_caches(const segment::ConfigBlock& config) {
  tcp_upstream::DuplicateRequestCaches caches;
  if (!config.slots().over_tcp) return caches;
  for (std::uint32_t i = 0; i < config.slots().count; ++i)
    caches.push_back(make_owned<tcp_upstream::DuplicateRequestCache>(
        config.request_cache, config.reactors * config.all_connections()));
  return caches;
}

tcp_upstream::UpstreamsConfig upstreams_config(const segment::ConfigBlock& config, segment::ReactorArea& area,
                                               const segment::SharedUpstreamAddresses& addresses,
                                               const tcp_upstream::DuplicateRequestCaches& caches) {
  tcp_upstream::UpstreamConfig each;
  each.addresses = &addresses;
  each.most_connections = segment::kMaxUpstreamConnections;
  each.max_calls = config.max_calls;
  each.max_clients = config.all_connections();
  each.credits = config.credits;
  each.replies = {.records = require_pool("[forward] record_buffers", config.record_buffers,
                                          {{"a call with a long reply, until it is released", 1}}),
                  .items = require_pool("[forward] item_buffers", config.item_buffers,
                                        {{"a call with a short reply, until it is released", 1}}),
                  .max_io_bytes = config.max_io_bytes()};
  tcp_upstream::UpstreamsConfig upstreams;
  for (std::uint32_t i = 0; i < caches.size(); ++i) {
    each.cache = caches[i].get();
    upstreams.upstreams.push_back({.config = each, .number = i, .area = &area.upstreams[i]});
  }
  return upstreams;
}

rdma_upstream::RelayConfig relay_config(const segment::ConfigBlock& config,
                                        const segment::SharedUpstreamAddresses& addresses) {
  return {.addresses = &addresses,
          .server_side = {.connections = config.slots().rdma_connections,
                          .calls = config.calls_to_upstream(),
                          .inline_bytes = config.inline_bytes,
                          .record_buffers = require_pool("[forward] record_buffers", config.record_buffers,
                                                         {{"a long call", 1}, {"its reply", 1}}),
                          .item_buffers = config.item_buffers,
                          .max_io_bytes = config.max_io_bytes(),
                          .pool_segment_bytes = config.copied_segment_bytes()}};
}

reactor::ReactorConfig reactor_config(const segment::ConfigBlock& config, std::uint32_t number) {
  return {.number = number,
          .cpu = config.cpus[number],
          .numa_node = config.numa_nodes[number],
          .reply_chunks = config.reply_chunks_if_needed != 0 ? rpcrdma::ReplyChunkPolicy::IfNeeded
                                                             : rpcrdma::ReplyChunkPolicy::Always,
          .max_version = config.max_version,
          .version2 = version_2_config(config),
          .progress_timeout_ns = std::uint64_t{config.progress_timeout_s} * 1'000'000'000,
          .probe_after_ns = std::uint64_t{config.probe_after_s} * 1'000'000'000,
          .idle = config.idle,
          .dial = dial_config(config)};
}

namespace {

/// Size of a frame buffer in bytes. Frames of af_packet and memif have a fixed size, which does not depend
/// on the MTU of the link, and must fit into a buffer.
constexpr std::uint32_t kFrameBufferBytes = 8192;
/// Additional queue pairs for connections that are being drained while their successors are established.
constexpr std::uint32_t kSpareQueuePairs = 8;
static_assert(segment::kMaxConnections <= rdma::softroce::kMaxQueuePairs);

}  // namespace

std::uint32_t queue_pairs_of_device(const segment::ConfigBlock& config) {
  return smaller_of(config.all_connections() + kSpareQueuePairs, rdma::softroce::kMaxQueuePairs);
}

namespace {

rdma::softroce::PortConfig port_config(const segment::ConfigBlock& config) {
  rdma::softroce::PortConfig port;
  const std::optional<std::uint16_t> ethdev = rdma::softroce::first_ethdev();
  if (!ethdev)
    throw SetupError("DPDK finds no ethdev '" + std::string(config.ethdev) +
                     "'. Check ethdev in [device] of the configuration.");
  port.ethdev = *ethdev;
  port.lanes = config.reactors;
  port.hardware_queues = config.hardware_queues;
  for (std::uint32_t i = 0; i < config.address_count; ++i)
    port.addresses.push_back(
        {config.addresses[i].address, static_cast<std::uint8_t>(config.addresses[i].prefix_bits)});
  for (std::uint32_t i = 0; i < config.gateway_count; ++i) port.gateways.push_back(config.gateways[i]);
  port.vlan = static_cast<std::uint16_t>(config.vlan);
  port.announce = true;
  port.traffic_class = static_cast<std::uint8_t>(config.traffic_class);
  port.service_level = static_cast<std::uint8_t>(config.priority());
  port.cnp_traffic_class = static_cast<std::uint8_t>(config.cnp_traffic_class);
  port.link_mtu = static_cast<std::uint16_t>(config.mtu);
  port.frame_buffer_bytes = kFrameBufferBytes;
  port.card_reads_payload = config.payload_in_place != 0;
  port.max_queue_pairs = queue_pairs_of_device(config);
  return port;
}

void log_steering(const rdma::softroce::Steering& steering) {
  if (steering.rules > 0)
    log::info("{} flow rules of the ethdev steer packets to their reactors", steering.rules);
  else if (!steering.refusal.empty())
    log::info(
        "The ethdev supports no flow rules for queue pairs ({}), so packets for another reactor are handed "
        "over",
        steering.refusal);
}

void log_transmission(const rdma::softroce::Transmission& transmission) {
  if (transmission.in_place)
    log::info("The ethdev sends payload from its place in memory, without a copy");
  else if (!transmission.obstacle.empty())
    log::info("Payload is copied into packets for the ethdev: {}", transmission.obstacle);
}

}  // namespace

bool is_vdev(const segment::ConfigBlock& config) {
  return std::strncmp(config.ethdev, "net_", 4) == 0;
}

Devices::Devices(const segment::ConfigBlock& config) {
  switch (config.driver) {
    case segment::Driver::SoftRoce:
      port_ = rdma::softroce::Port::open(port_config(config));
      log_steering(port_->steering());
      log_transmission(port_->transmission());
      log_notices();
      in_place_ = port_->transmission().in_place;
      return;
    case segment::Driver::Verbs:
      return;
    case segment::Driver::Loopback:
      if (config.reverse.in_use != 0)  // created by the server, on this machine
        fabric_ = rdma::loopback::Fabric::attach(config.loopback_path);
      else
        fabric_ = rdma::loopback::Fabric::create(
            config.loopback_path,
            {.links = config.loopback_links, .arena_bytes = config.loopback_arena_bytes});
      return;
  }
}

Devices::~Devices() = default;

std::unique_ptr<rdma::Device> Devices::make_device(const segment::ConfigBlock& config,
                                                   std::uint32_t reactor) {
  auto made = open(config, reactor);
  made_.push_back(made.get());
  logged_.push_back(rdma::Condition::Up);
  return made;
}

std::unique_ptr<rdma::Device> Devices::open(const segment::ConfigBlock& config, std::uint32_t reactor) {
  switch (config.driver) {
    case segment::Driver::SoftRoce:
      return port_->make_device(reactor);
    case segment::Driver::Loopback:
      break;
    case segment::Driver::Verbs: {
      rdma::verbs::DeviceConfig device{.device = {},
                                       .max_queue_pairs = queue_pairs_of_device(config),
                                       .shared_receives = config.shared_receives,
                                       .shared_receive_bytes = config.inline_bytes,
                                       .windows = config.memory_windows != 0,
                                       .call_regions = config.window_less != segment::WindowLess::Refuse};
      if (const segment::VerbsPort* port = config.verbs_port(reactor)) {
        device.device = port->device;
        device.port = static_cast<std::uint8_t>(port->port);
      }
      auto made = rdma::verbs::open(device);
      log::info("Reactor {} polls the RDMA device {}", reactor, made->name());
      return made;
    }
  }
  return rdma::loopback::make_device(
      fabric_, {.name = "loopback" + std::to_string(reactor), .max_queue_pairs = config.all_connections()});
}

void Devices::log_notices() {
  if (!port_) return;
  for (const rdma::softroce::LinkNotice& notice : port_->take_notices()) {
    if (notice.level == rdma::softroce::LinkNotice::Level::Warning)
      log::warn("{}", notice.text);
    else
      log::info("{}", notice.text);
  }
}

void Devices::poll_conditions() {
  if (port_ && in_place_ != port_->transmission().in_place) {
    in_place_ = port_->transmission().in_place;
    log_transmission(port_->transmission());
  }
  for (std::size_t i = 0; i < made_.size(); ++i) {
    made_[i]->handle_events();
    std::string notice;
    while (const rdma::Notice kind = made_[i]->take_notice(notice)) {
      if (kind == rdma::kWarning)
        log::warn("{}", notice);
      else
        log::info("{}", notice);
    }
    log_notices();
    const rdma::Condition condition = made_[i]->condition();
    if (condition == logged_[i]) continue;
    if (port_ && i > 0) continue;  // all lanes share the port's condition
    logged_[i] = condition;
    switch (condition) {
      case rdma::Condition::Up:
        log::info("The RDMA device {} is up", made_[i]->name());
        break;
      case rdma::Condition::PortDown:
        log::warn("The RDMA device {} has no link. Check cable, switch and peer", made_[i]->name());
        break;
      case rdma::Condition::Gone:
        if (port_)
          log::warn(
              "The RDMA device {} was removed. Connections end unless it returns before their retries are "
              "exhausted",
              made_[i]->name());
        else
          log::warn(
              "The RDMA device {} was removed. Its connections have ended, and Sluice waits until it returns",
              made_[i]->name());
        break;
      case rdma::Condition::Broken:
        log::warn(
            "The RDMA device {} was closed because of an error. Its connections have ended, and Sluice opens "
            "it again",
            made_[i]->name());
        break;
    }
  }
}

}  // namespace sluice::process
