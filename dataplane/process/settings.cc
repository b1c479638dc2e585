// SPDX-License-Identifier: Apache-2.0
#include "dataplane/process/settings.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "dataplane/base/buffer_stride.h"
#include "dataplane/base/pool_size.h"
#include "dataplane/ingress/ingress.h"
#include "dataplane/process/memory_table.h"
#include "dataplane/segment/segment.h"
#include "dataplane/service/forward/upstreams.h"
#include "dataplane/tcp/sockets.h"
#include "dataplane/ulb/bindings.h"
#include "dataplane/ulb/nfs3.h"
#include "pmd/loopback/fabric.h"

namespace sluice::process {
namespace {

static_assert(segment::kMaxExports == service::memory::kMaxExports);

service::Withheld withheld(const segment::WithheldConfig& from) {
  return {.pnfs = from.pnfs != 0, .referrals = from.referrals != 0};
}

forward::UpstreamConfig upstream_config(const segment::ConfigBlock& config,
                                        const segment::UpstreamConfig& from,
                                        const segment::SharedUpstreamAddresses& addresses,
                                        const forward::ReplyBuffers& replies) {
  return forward::UpstreamConfig{.name = from.name,
                                 .addresses = &addresses,
                                 .port = static_cast<std::uint16_t>(from.port),
                                 .shared_connections = from.connections,
                                 .max_calls = from.max_calls,
                                 .max_clients = config.all_connections(),
                                 .call_timeout_ns = std::uint64_t{from.call_timeout_s} * 1'000'000'000,
                                 .privileged_port = from.privileged_port != 0,
                                 .credits = config.credits,
                                 .withheld = withheld(from.withheld),
                                 .replies = replies};
}

bool is_rdma(const segment::UpstreamConfig& upstream) {
  return upstream.transport == segment::Transport::Rdma;
}

std::vector<service::Route> routes(const segment::UpstreamConfig& from) {
  std::vector<service::Route> routes;
  for (std::uint32_t r = 0; r < from.route_count; ++r)
    routes.push_back({from.routes[r].program, from.routes[r].version});
  return routes;
}

relay::RelayConfig relay_config(const segment::ConfigBlock& config, const segment::UpstreamConfig& from,
                                std::uint32_t number, const segment::SharedUpstreamAddresses& addresses) {
  return {.name = from.name,
          .number = number,
          .addresses = &addresses,
          .port = static_cast<std::uint16_t>(from.port),
          .server_side = {.connections = from.connections,
                          .calls = config.calls_to_upstream(),
                          .inline_bytes = config.inline_bytes,
                          .record_buffers = require_pool("[forward] record_buffers", config.record_buffers,
                                                         {{"a long call", 1}, {"its reply", 1}}),
                          .item_buffers = config.item_buffers,
                          .call_timeout_ns = std::uint64_t{from.call_timeout_s} * 1'000'000'000,
                          .withheld = withheld(from.withheld)},
          .routes = routes(from)};
}

/// What upstreams that come may serve: with exports of their own, what can be shared; at ports of their own, the rest.
std::vector<service::Route> routes_of_spares(const segment::ConfigBlock& config) {
  std::vector<service::Route> all;
  const auto add = [&all](const segment::UpstreamConfig* model, bool shared) {
    if (model == nullptr) return;
    for (const service::Route& route : routes(*model))
      if (forward::ExportGroup::shares(ulb::binding_or_plain(route.program, route.version)) == shared)
        all.push_back(route);
  };
  add(config.model_with_exports(), true);
  add(config.model_at_port(), false);
  return all;
}

}  // namespace

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
    for (std::uint32_t a = 0; a < std::min(from.allowed_count, segment::kMaxAllowed); ++a)
      options.allowed.push_back({from.allowed[a].address, from.allowed[a].prefix_bits});
    const auto hosts = from.hosts.begin();
    options.hosts.assign(hosts, hosts + std::min(from.host_count, segment::kMaxExportHosts));
    exports.push_back(std::move(options));
  }
  return exports;
}

service::memory::MemoryServiceConfig memory_config(const segment::ConfigBlock& config) {
  return {.max_files = config.max_files, .handle_key = config.handle_key, .exports = export_options(config)};
}

rpcrdma::Version2Config version_2_config(const segment::ConfigBlock& config) {
  rpcrdma::Version2Config version2;
  version2.parameters.max_segments = config.max_segments;
  version2.keep_alive_ns = std::uint64_t{config.keep_alive_s} * 1'000'000'000;
  version2.version_1_memory_ns = std::uint64_t{config.version_1_memory_s} * 1'000'000'000;
  version2.hold_calls = config.hold_calls != 0;
  return version2;
}

/// Most long calls and replies are shorter: a 4 KiB WRITE in one piece, a LIST of some hundred names.
constexpr std::uint32_t kSmallBufferBytes = 16u << 10;

rpcrdma::EngineConfig engine_config(const segment::ConfigBlock& config) {
  rpcrdma::EngineConfig engine;
  engine.max_connections = config.all_connections();
  engine.capacity.call_slots = config.credits;
  engine.capacity.receive_bytes = config.inline_bytes;
  engine.capacity.reply_buffer_bytes = config.reply_buffer_bytes;
  engine.small_buffer_bytes = kSmallBufferBytes;
  engine.call_buffers = config.call_buffers;
  engine.reply_buffers = config.large_reply_buffers;
  if (config.upstream_count > 0) {
    engine.reply_buffer_bytes = tcp::kMaxRecordBytes;
    // Calls keep theirs while the upstream works on them, and need one of `item_buffers` as long.
    engine.lent_call_buffers = std::max(engine.lent_call_buffers, config.item_buffers);
    engine.callers = std::min(config.callback_clients, config.max_connections);
    engine.capacity.requests = rpcrdma::kCallBacksAtOnce;
  }
  if (config.reverse.in_use != 0)
    engine.capacity.requests = std::max(engine.capacity.requests, config.reverse.calls);
  if (std::any_of(config.upstreams.begin(), config.upstreams.begin() + config.upstream_count, is_rdma))
    engine.capacity.requests = std::max(engine.capacity.requests, config.calls_to_upstream());
  return engine;
}

reactor::DialConfig dial_config(const segment::ConfigBlock& config) {
  return {.inline_bytes = config.inline_bytes,
          .call_backs = std::min<std::uint32_t>(egress::kMaxServerCalls, config.credits)};
}

ingress::IngressConfig ingress_config(const segment::ConfigBlock& config) {
  const segment::ReverseConfig& from = config.reverse;
  return {.allowed = {from.allowed.begin(), from.allowed.begin() + from.allowed_count},
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
                          .call_timeout_ns = std::uint64_t{from.call_timeout_s} * 1'000'000'000,
                          .withheld = withheld(from.withheld)}};
}

std::unique_ptr<ingress::Listener> make_listener(const segment::ConfigBlock& config) {
  const segment::ReverseConfig& from = config.reverse;
  if (from.in_use == 0) return nullptr;
  sockaddr_storage address{};
  const socklen_t bytes =
      tcp::socket_address(from.listen_address, static_cast<std::uint16_t>(from.listen_port), address);
  return std::make_unique<ingress::Listener>(address, bytes);
}

forward::RequestCaches request_caches(const segment::ConfigBlock& config) {
  forward::RequestCaches caches;
  for (std::uint32_t i = 0; i < config.upstream_places(); ++i) {
    const bool over_rdma =
        i < config.upstream_count ? is_rdma(config.upstreams[i]) : config.spares_over_rdma();
    caches.push_back(over_rdma ? nullptr
                               : std::make_shared<forward::RequestCache>(
                                     config.request_cache, config.reactors * config.all_connections()));
  }
  return caches;
}

forward::UpstreamsConfig upstreams_config(const segment::ConfigBlock& config, segment::ReactorArea& area,
                                          const segment::SharedUpstreamAddresses& addresses,
                                          const forward::RequestCaches& caches) {
  const forward::ReplyBuffers replies{
      .records = require_pool("[forward] record_buffers", config.record_buffers,
                              {{"a call with a long reply, until it is released", 1}}),
      .items = require_pool("[forward] item_buffers", config.item_buffers,
                            {{"a call with a short reply, until it is released", 1}})};
  forward::UpstreamsConfig upstreams;
  for (std::uint32_t i = 0; i < config.upstream_count; ++i) {
    const segment::UpstreamConfig& from = config.upstreams[i];
    if (is_rdma(from)) continue;
    forward::UpstreamSetup setup{.config = upstream_config(config, from, addresses, replies),
                                 .number = i,
                                 .routes = {},
                                 .listen_port = from.listen_port,
                                 .area = &area.upstreams[i]};
    setup.config.cache = caches[i];
    setup.config.handle_tag = from.handle_tag;
    setup.routes = routes(from);
    upstreams.upstreams.push_back(std::move(setup));
  }
  if (config.spares_over_rdma()) return upstreams;
  for (std::uint32_t i = config.upstream_count; i < config.upstream_places(); ++i) {
    const segment::UpstreamConfig& model = *config.model_of_spares();
    forward::UpstreamSetup setup{.config = upstream_config(config, model, addresses, replies),
                                 .number = i,
                                 .routes = routes_of_spares(config),
                                 .listen_port = service::kNoPort,
                                 .area = &area.upstreams[i]};
    setup.config.name.clear();  // which no upstream has
    setup.config.cache = caches[i];
    setup.config.spare = true;
    upstreams.upstreams.push_back(std::move(setup));
  }
  return upstreams;
}

std::vector<RelaySetup> relays_config(const segment::ConfigBlock& config, segment::ReactorArea& area,
                                      const segment::SharedUpstreamAddresses& addresses) {
  std::vector<RelaySetup> relays;
  const auto add = [&](std::uint32_t number, const segment::UpstreamConfig& from) {
    relays.push_back({.config = relay_config(config, from, number, addresses),
                      .listen_port = from.listen_port,
                      .area = &area.upstreams[number]});
  };
  for (std::uint32_t i = 0; i < config.upstream_count; ++i)
    if (is_rdma(config.upstreams[i])) add(i, config.upstreams[i]);
  if (!config.spares_over_rdma()) return relays;
  for (std::uint32_t i = config.upstream_count; i < config.upstream_places(); ++i) {
    add(i, *config.model_of_spares());
    relays.back().config.name.clear();  // which no upstream has
    relays.back().listen_port = service::kNoPort;
  }
  return relays;
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

bool serves_memory(const segment::ConfigBlock& config) {
  const service::Binding& binding = ulb::nfs3_binding();
  for (std::uint32_t i = 0; i < config.upstream_count; ++i)
    for (std::uint32_t r = 0; r < config.upstreams[i].route_count; ++r)
      if (config.upstreams[i].routes[r].program == binding.program &&
          config.upstreams[i].routes[r].version == binding.version)
        return false;
  return config.reverse.in_use == 0;
}

std::uint64_t export_bytes(const segment::ConfigBlock& config) {
  constexpr std::uint64_t kMinBytes = 16u << 20;
  return serves_memory(config) ? config.memory_bytes : kMinBytes;
}

// --- What the data plane reserves

namespace {

using Line = std::pair<const char*, std::uint64_t>;

// With the spare ones.
std::uint32_t rdma_upstreams(const segment::ConfigBlock& config) {
  const auto first = config.upstreams.begin();
  const auto at_start = std::count_if(first, first + config.upstream_count, [](const auto& upstream) {
    return upstream.transport == segment::Transport::Rdma;
  });
  return static_cast<std::uint32_t>(at_start) + (config.spares_over_rdma() ? config.spare_places() : 0);
}
std::uint32_t tcp_upstreams(const segment::ConfigBlock& config) {
  return config.upstream_places() - rdma_upstreams(config);
}

std::uint64_t upstream_bytes(const segment::ConfigBlock& config) {
  const std::uint32_t over_tcp = tcp_upstreams(config);
  if (over_tcp == 0) return 0;
  const forward::ReplyBuffers replies{.records = config.record_buffers, .items = config.item_buffers};
  const std::uint64_t each = replies.records * std::uint64_t{tcp::kMaxRecordBytes} +
                             replies.items_for(config.all_connections()) * std::uint64_t{forward::kItemBytes};
  return std::uint64_t{config.reactors} * over_tcp * each;
}

std::uint64_t relay_bytes(const segment::ConfigBlock& config) {
  const std::uint32_t reversed = config.reverse.in_use != 0 ? config.reverse.connections : 0;
  const std::uint64_t each = config.record_buffers * std::uint64_t{tcp::kMaxRecordBytes} +
                             config.item_buffers * std::uint64_t{tcp::kStreamBytes};
  return config.reactors *
         (rdma_upstreams(config) * each + (config.connections_to_servers() - reversed) *
                                              egress::server_connection_bytes(config.calls_to_upstream()));
}

std::uint64_t cache_bytes(const segment::ConfigBlock& config) {
  return std::uint64_t{tcp_upstreams(config)} * config.request_cache * forward::kKeptBytes;
}

std::uint64_t reverse_bytes(const segment::ConfigBlock& config) {
  const segment::ReverseConfig& reverse = config.reverse;
  if (reverse.in_use == 0) return 0;
  return config.reactors * (reverse.record_buffers * std::uint64_t{tcp::kMaxRecordBytes} +
                            reverse.item_buffers * std::uint64_t{tcp::kStreamBytes} +
                            reverse.clients * ingress::client_bytes() +
                            reverse.connections * egress::server_connection_bytes(reverse.calls));
}

Line driver_line(const segment::ConfigBlock& config) {
  if (config.driver == segment::Driver::Loopback)
    return {"loopback wires (resident as connections are made)",
            std::uint64_t{config.loopback_links} * sizeof(rdma::loopback::Link)};
  return {config.driver == segment::Driver::SoftRoce ? "packet buffers (DPDK)" : "DPDK's own",
          std::uint64_t{config.dpdk_memory_mib} << 20};
}

/// Of assembled calls, of replies and of continued messages.
std::uint64_t small_buffer_bytes(const rpcrdma::EngineConfig& engine) {
  rpcrdma::SharedMemoryConfig each{.accounts = engine.max_connections,
                                   .small_bytes = engine.small_buffer_bytes};
  const std::uint32_t replies = each.small_buffers();
  const std::uint32_t calls = replies - each.lent_small + engine.lent_call_buffers;
  each.guaranteed_small = rpcrdma::kGuaranteedAssembly;
  return std::uint64_t{calls + replies + each.small_buffers()} * each.small_bytes;
}

}  // namespace

segment::MemoryTable memory_table(const segment::ConfigBlock& config) {
  const std::uint64_t reactors = config.reactors;
  const rpcrdma::EngineConfig engine = engine_config(config);
  const std::uint64_t connections = reactors * engine.max_connections;
  const std::uint64_t slots = connections * engine.capacity.slots();
  const Line lines[] = {
      {"file data (resident as files grow)", export_bytes(config)},
      {"Receive buffers", connections * engine.capacity.receives() * buffer_stride(config.inline_bytes)},
      {"Receives that connections share", reactors * config.shared_receives * config.inline_bytes},
      {"reply buffers of call slots", slots * buffer_stride(config.reply_buffer_bytes)},
      {"long-call buffers",
       reactors * (engine.call_buffers + engine.assembly_buffers) * engine.call_buffer_bytes},
      {"buffers for short ones of both", reactors * small_buffer_bytes(engine)},
      {"large reply buffers", reactors * config.large_reply_buffers * engine.reply_buffer_bytes},
      {"replies of upstreams", upstream_bytes(config)},
      {"calls and replies of RDMA upstreams", relay_bytes(config)},
      {"calls kept in case they come again", cache_bytes(config)},
      {"calls and replies of the reverse gateway", reverse_bytes(config)},
      {"call slots", slots * (sizeof(rpcrdma::CallSlot) + sizeof(service::CallStorage))},
      {"inodes and directory entries (resident as files are made)",
       config.max_files * (sizeof(service::memory::Inode) + 2 * sizeof(service::memory::Entry))},
      driver_line(config),
      {"shared segment", sizeof(segment::ControlPart) + sizeof(segment::DataPart)},
  };
  segment::MemoryTable table{};
  static_assert(std::size(lines) <= segment::kMaxMemoryEntries);
  std::size_t i = 0;
  for (const auto& [what, bytes] : lines) {
    std::strncpy(table[i].what, what, sizeof table[i].what - 1);
    table[i++].reserved_bytes = bytes;
  }
  return table;
}

}  // namespace sluice::process
