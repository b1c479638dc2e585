// SPDX-License-Identifier: Apache-2.0
//
// Ranges of the integers in the configuration block. The control plane checks them when it reads the file
// (controlplane/config/keys.cc), and the data plane when it reads the block (defect_of() in checked.h).
// Constants; any thread.
#pragma once

#include <cstdint>
#include <span>
#include <type_traits>

#include "dataplane/segment/config_block.h"

namespace sluice::segment {

inline constexpr std::uint64_t kMaxPort = 65535;
inline constexpr std::uint64_t kMaxTimeoutS = 3600;  ///< of every timeout of calls, in seconds
inline constexpr std::uint64_t kMaxMemoryMib = 1u << 20;
inline constexpr std::uint64_t kMaxLoopbackArenaMib = 65536;

/// The values that a key of the file may have.
template <typename Owner>
struct IntegerRange {
  const char* name;  ///< full name of the key
  std::uint32_t Owner::*member;
  std::uint64_t least;
  std::uint64_t most;
};

inline constexpr IntegerRange<ConfigBlock> kBlockRanges[] = {
    {"reactor.count", &ConfigBlock::reactors, 1, kMaxReactors},
    {"device.loopback_links", &ConfigBlock::loopback_links, 1, 256},
    {"device.shared_receives", &ConfigBlock::shared_receives, 0, kMaxSharedReceives},
    {"device.pool_segment_bytes", &ConfigBlock::pool_segment_bytes, 1024, 1u << 20},
    {"device.traffic_class", &ConfigBlock::traffic_class, 0, 255},
    {"device.cnp_traffic_class", &ConfigBlock::cnp_traffic_class, 0, 255},
    {"device.mtu", &ConfigBlock::mtu, 512, 9000},
    {"device.hardware_queues", &ConfigBlock::hardware_queues, 1, kMaxReactors},
    {"device.dpdk_memory_mib", &ConfigBlock::dpdk_memory_mib, 64, 1u << 16},
    {"transport.port", &ConfigBlock::port, 1, kMaxPort},
    {"transport.max_connections", &ConfigBlock::max_connections, 1, kMaxConnections},
    {"transport.credits", &ConfigBlock::credits, 1, 1024},
    {"transport.inline_bytes", &ConfigBlock::inline_bytes, 1024, 65536},
    {"transport.max_version", &ConfigBlock::max_version, 1, 2},
    {"transport.max_segments", &ConfigBlock::max_segments, 1, 160},
    {"transport.keep_alive_s", &ConfigBlock::keep_alive_s, 0, kMaxTimeoutS},
    {"transport.probe_after_s", &ConfigBlock::probe_after_s, 0, kMaxTimeoutS},
    {"transport.progress_timeout_s", &ConfigBlock::progress_timeout_s, 0, kMaxTimeoutS},
    {"transport.version_1_memory_s", &ConfigBlock::version_1_memory_s, 0, 86400},
    {"transport.call_buffers", &ConfigBlock::call_buffers, 1, 1024},
    {"transport.large_reply_buffers", &ConfigBlock::large_reply_buffers, 1, 4096},
    {"transport.max_io_mib", &ConfigBlock::max_io_mib, 1, kMaxIoMib},
    {"memory.max_files", &ConfigBlock::max_files, 64, 8'000'000},
    {"forward.record_buffers", &ConfigBlock::record_buffers, 1, 4096},
    {"forward.item_buffers", &ConfigBlock::item_buffers, 1, 65536},
    {"forward.max_calls", &ConfigBlock::max_calls, 16, 65536},
    {"forward.request_cache", &ConfigBlock::request_cache, 16, 1u << 20},
    {"forward.callback_clients", &ConfigBlock::callback_clients, 0, 4096},
    {"forward.upstreams_max", &ConfigBlock::upstreams_max, 0, kMaxUpstreams},
    {"forward.rdma_upstreams_max", &ConfigBlock::rdma_upstreams_max, 0, kMaxUpstreams},
    {"observability.slow_call_ms", &ConfigBlock::slow_call_ms, 0, 3'600'000},
};

inline constexpr IntegerRange<UpstreamConfig> kUpstreamRanges[] = {
    {"upstream.port", &UpstreamConfig::port, 1, kMaxPort},
    {"upstream.connections", &UpstreamConfig::connections, 1, kMaxUpstreamConnections},
    {"upstream.call_timeout_s", &UpstreamConfig::call_timeout_s, 0, kMaxTimeoutS},
    {"upstream.mount_port", &UpstreamConfig::mount_port, 0, kMaxPort},
};

inline constexpr IntegerRange<ReverseConfig> kReverseRanges[] = {
    {"reverse.listen_port", &ReverseConfig::listen_port, 1, kMaxPort},
    {"reverse.server_port", &ReverseConfig::server_port, 1, kMaxPort},
    {"reverse.clients", &ReverseConfig::clients, 1, 16384},
    {"reverse.connections", &ReverseConfig::connections, 1, 512},
    {"reverse.calls", &ReverseConfig::calls, 4, 1024},
    {"reverse.record_buffers", &ReverseConfig::record_buffers, 2, 4096},
    {"reverse.item_buffers", &ReverseConfig::item_buffers, 1, 65536},
    {"reverse.call_timeout_s", &ReverseConfig::call_timeout_s, 0, kMaxTimeoutS},
    {"reverse.mount_port", &ReverseConfig::mount_port, 0, kMaxPort},
};

/// Returns the ranges of the block itself, or of one of its parts.
template <typename Owner>
constexpr std::span<const IntegerRange<Owner>> ranges_of() noexcept {
  if constexpr (std::is_same_v<Owner, UpstreamConfig>)
    return kUpstreamRanges;
  else if constexpr (std::is_same_v<Owner, ReverseConfig>)
    return kReverseRanges;
  else
    return kBlockRanges;
}

}  // namespace sluice::segment
