// SPDX-License-Identifier: Apache-2.0
#include "dataplane/process/memory_table.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

#include "dataplane/base/buffer_stride.h"
#include "dataplane/ingress/tcp_client.h"
#include "dataplane/process/engine_settings.h"
#include "dataplane/segment/segment.h"
#include "dataplane/service/forward/upstreams.h"
#include "dataplane/service/memory/filesystem.h"
#include "dataplane/ulb/nfs3.h"
#include "pmd/loopback/fabric.h"

namespace sluice::process {
namespace {

/// Most long calls and replies are shorter: a 4 KiB WRITE in one piece, a LIST of some hundred names.
constexpr std::uint32_t kSmallBufferBytes = 16u << 10;

bool is_rdma(const segment::UpstreamConfig& upstream) {
  return upstream.transport == segment::Transport::Rdma;
}

}  // namespace

rpcrdma::Version2Config version_2_config(const segment::ConfigBlock& config) {
  rpcrdma::Version2Config version2;
  version2.parameters.max_segments = config.max_segments;
  version2.keep_alive_ns = std::uint64_t{config.keep_alive_s} * 1'000'000'000;
  version2.version_1_memory_ns = std::uint64_t{config.version_1_memory_s} * 1'000'000'000;
  version2.hold_calls = config.hold_calls != 0;
  return version2;
}

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

bool serves_memory(const segment::ConfigBlock& config) {
  for (std::uint32_t i = 0; i < config.upstream_count; ++i)
    for (std::uint32_t r = 0; r < config.upstreams[i].route_count; ++r)
      if (config.upstreams[i].routes[r] == segment::RouteConfig{ulb::kNfsProgram, ulb::kNfs3Version})
        return false;
  return config.reverse.in_use == 0;
}

std::uint64_t export_bytes(const segment::ConfigBlock& config) {
  constexpr std::uint64_t kMinBytes = 16u << 20;
  return serves_memory(config) ? config.memory_bytes : kMinBytes;
}

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
