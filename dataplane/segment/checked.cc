// SPDX-License-Identifier: Apache-2.0
#include "dataplane/segment/checked.h"

#include <cstdint>

#include "dataplane/base/small_algorithms.h"

namespace sluice::segment {
namespace {

/// Remembers the first defect.
class Look {
 public:
  void within(const char* key, std::uint64_t value, std::uint64_t least, std::uint64_t most) {
    if (!defect_.empty() || (least <= value && value <= most)) return;
    defect_ = std::string(key) + " is " + std::to_string(value) + ", not from " + std::to_string(least) +
              " to " + std::to_string(most);
  }
  template <typename Text>
  void ends(const char* key, const Text& text) {
    if (defect_.empty() && std::memchr(std::data(text), '\0', std::size(text)) == nullptr)
      defect_ = std::string(key) + " has no end";
  }
  const std::string& defect() const { return defect_; }

 private:
  std::string defect_;
};

void look_at_device(Look& look, const ConfigBlock& config) {
  look.within("device.driver", static_cast<std::uint32_t>(config.driver), 0,
              static_cast<std::uint32_t>(Driver::Verbs));
  look.within("reactor.idle", static_cast<std::uint32_t>(config.idle), 0,
              static_cast<std::uint32_t>(IdlePolicy::Backoff));
  look.ends("device.loopback_path", config.loopback_path);
  look.within("device.loopback_links", config.loopback_links, 1, 256);
  look.within("device.loopback_arena_mib", config.loopback_arena_bytes, 0, 65536ull << 20);
  look.ends("device.ethdev", config.ethdev);
  look.within("device.addresses", config.address_count, 0, kMaxAddresses);
  for (const AllowedPrefix& address : config.addresses)
    look.within("device.addresses", address.prefix_bits, 0, 128);
  look.within("device.devices", config.verbs_port_count, 0, kMaxReactors);
  for (const VerbsPort& port : config.verbs_ports) look.ends("device.devices", port.device);
  look.within("device.gateways", config.gateway_count, 0, config.gateways.size());
  look.within("device.mtu", config.mtu, 512, 9000);
  look.within("device.hardware_queues", config.hardware_queues, 1, kMaxReactors);
  look.within("device.dpdk_memory_mib", config.dpdk_memory_mib, 64, 1u << 16);
  look.within("device.shared_receives", config.shared_receives, 0, kMaxSharedReceives);
}

void look_at_transport(Look& look, const ConfigBlock& config) {
  look.within("transport.port", config.port, 1, 65535);
  look.within("transport.max_connections", config.max_connections, 1, kMaxConnections);
  look.within("transport.credits", config.credits, 1, 1024);
  look.within("transport.inline_bytes", config.inline_bytes, 1024, 65536);
  look.within("transport.max_version", config.max_version, 1, 2);
  look.within("transport.max_segments", config.max_segments, 1, 160);
  look.within("transport.call_buffers", config.call_buffers, 1, 1024);
  look.within("transport.large_reply_buffers", config.large_reply_buffers, 1, 4096);
  look.within("transport.reply_buffer_bytes", config.reply_buffer_bytes, 1024, 1u << 20);
  look.within("classes", config.class_count, 1, kMaxClasses);
  for (const auto& name : config.class_names) look.ends("classes.name", name);
}

void look_at_upstream(Look& look, const UpstreamConfig& upstream) {
  look.ends("upstream.name", upstream.name);
  look.within("upstream.hosts", upstream.host_count, 0, kMaxUpstreamHosts);
  for (const auto& host : upstream.hosts) look.ends("upstream.hosts", host);
  look.within("upstream.transport", static_cast<std::uint32_t>(upstream.transport), 0,
              static_cast<std::uint32_t>(Transport::Rdma));
  look.within("upstream.listen_port", upstream.listen_port, 0, 65535);
  look.within("upstream.connections", upstream.connections, 1, 64);
  look.within("upstream.max_calls", upstream.max_calls, 16, 65536);
  look.within("upstream.clients", upstream.allowed_count, 0, kMaxAllowed);
  look.within("upstream.programs", upstream.route_count, 0, kMaxRoutes);
  look.ends("upstream.prefix", upstream.prefix);
  look.within("upstream.exports", upstream.export_count, 0, kMaxUpstreamExports);
  for (const auto& path : upstream.exports) look.ends("upstream.exports", path);
}

void look_at_reverse(Look& look, const ReverseConfig& reverse) {
  look.within("reverse.clients", reverse.clients, 1, 16384);
  look.within("reverse.connections", reverse.connections, 1, 512);
  look.within("reverse.calls", reverse.calls, 4, 1024);
  look.within("reverse.calls, a power of two", std::has_single_bit(reverse.calls), 1, 1);
  look.within("reverse.record_buffers", reverse.record_buffers, 2, 4096);
  look.within("reverse.item_buffers", reverse.item_buffers, 1, 65536);
  look.within("reverse.allowed", reverse.allowed_count, 0, kMaxAllowed);
}

void look_at_exports(Look& look, const ConfigBlock& config) {
  look.within("memory.size_mib", config.memory_bytes, 0, 1ull << 40);
  look.within("memory.max_files", config.max_files, 0, 8'000'000);
  for (const ExportConfig& entry : config.exports) {
    look.ends("export.path", entry.path);
    look.within("export.clients", entry.allowed_count, 0, kMaxAllowed);
    look.within("export.hosts", entry.host_count, 0, kMaxExportHosts);
  }
}

}  // namespace

std::string defect_of(const ConfigBlock& config) {
  Look look;
  look.within("reactor.count", config.reactors, 1, kMaxReactors);
  look_at_device(look, config);
  look_at_transport(look, config);
  look.within("upstream", config.upstream_count, 0, kMaxUpstreams);
  for (std::uint32_t i = 0; i < smaller_of(config.upstream_count, kMaxUpstreams); ++i)
    look_at_upstream(look, config.upstreams[i]);
  look.within("forward.record_buffers", config.record_buffers, 1, 4096);
  look.within("forward.item_buffers", config.item_buffers, 1, 65536);
  look.within("forward.request_cache", config.request_cache, 0, 1u << 20);
  look.within("forward.callback_clients", config.callback_clients, 0, 4096);
  if (config.reverse.in_use != 0) look_at_reverse(look, config.reverse);
  look_at_exports(look, config);
  if (!look.defect().empty()) return look.defect();
  look.within("connections in all", config.all_connections(), 1, kMaxConnections);
  return look.defect();
}

}  // namespace sluice::segment
