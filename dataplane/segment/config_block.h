// SPDX-License-Identifier: Apache-2.0
//
// The configuration in binary form: the control plane parses the file and publishes this block, so that the
// data plane parses no text.
//
// Plain values. The control plane's main thread is the only writer, through the SeqLock in Layout; any other
// thread or process reads a copy. The block has no pointers and neither owns nor refers to memory.
// controlplane/config has checked the values and reports errors. Units are in the names; call times are in
// seconds.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "dataplane/base/invariant.h"
#include "dataplane/base/small_algorithms.h"
#include "dataplane/segment/calls.h"
#include "dataplane/segment/gateways.h"
#include "dataplane/segment/tables.h"

namespace sluice::segment {

inline constexpr std::uint32_t kMaxAllowed = 16;
inline constexpr std::uint32_t kMaxExportHosts = 16;
/// Maximum size of the name of a client class or an upstream, including the terminating zero.
inline constexpr std::uint32_t kMaxNameBytes = 32;

/// An address prefix. IPv4 is mapped, ::ffff:a.b.c.d, with 96 added to the prefix length.
struct AllowedPrefix {
  PeerAddress address;
  std::uint32_t prefix_bits = 0;
};

struct ExportConfig {
  std::uint32_t in_use = 0;
  char path[kMaxPathBytes]{};
  std::uint32_t read_only = 0;
  std::uint32_t root_squash = 1;
  std::uint32_t all_squash = 0;
  std::uint32_t anonuid = 65534;
  std::uint32_t anongid = 65534;
  std::uint64_t quota_bytes = 0;
  std::uint32_t allowed_count = 0;  ///< zero: every address
  std::array<AllowedPrefix, kMaxAllowed> allowed;
  std::uint32_t host_count = 0;  ///< zero: every host, authenticated or not
  std::array<HostName, kMaxExportHosts> hosts;
};

inline constexpr std::uint32_t kMaxIoMib = 4;    ///< size of one READ or WRITE: the maximum that Linux offers
inline constexpr std::uint32_t kMaxRoutes = 16;  ///< per upstream

/// A program and version whose calls are forwarded to the upstream.
struct RouteConfig {
  std::uint32_t program = 0;
  std::uint32_t version = 0;
  bool operator==(const RouteConfig&) const = default;
};

inline constexpr std::uint32_t kMaxHostBytes = 256;       ///< address or host name, terminating zero included
inline constexpr std::uint32_t kMaxUpstreamHosts = 8;     ///< per upstream
inline constexpr std::uint32_t kMaxUpstreamExports = 16;  ///< named exports per upstream

/// Features that a gateway hides from its clients: service::Withheld.
struct WithheldConfig {
  std::uint32_t pnfs = 1;
  std::uint32_t referrals = 1;
};

enum class Transport : std::uint32_t { Tcp, Rdma };
/// Maximum of calls outstanding on one connection to an RDMA upstream. Servers grant less.
inline constexpr std::uint32_t kMaxCallsToUpstream = 128;
/// Maximum of connections to one upstream, per reactor.
inline constexpr std::uint32_t kMaxUpstreamConnections = 64;

struct UpstreamConfig {
  char name[kMaxNameBytes]{};
  std::uint32_t host_count = 0;
  /// Host names in order of preference, as in the file. control_tables.h has the addresses that they
  /// resolve to.
  std::array<std::array<char, kMaxHostBytes>, kMaxUpstreamHosts> hosts{};
  Transport transport = Transport::Tcp;
  std::uint32_t port = 2049;
  /// Port at which clients reach this upstream alone. Zero: the gateway's port, which it shares with other
  /// upstreams.
  std::uint32_t listen_port = 0;
  /// Connections per reactor. Tcp: shared by clients, in addition to dedicated ones. Rdma: each client with
  /// calls in progress has one.
  std::uint32_t connections = 4;
  std::uint32_t call_timeout_s = 0;
  std::uint32_t privileged_port = 0;
  WithheldConfig withheld;
  std::uint32_t mount_port = 0;  ///< zero: queried from the upstream's rpcbind
  /// Number of prefixes to whose clients MOUNT gives the exports; zero: every address.
  std::uint32_t allowed_count = 0;
  std::array<AllowedPrefix, kMaxAllowed> allowed;
  std::uint32_t route_count = 0;
  std::array<RouteConfig, kMaxRoutes> routes;
  /// Prefix of this upstream's file handles on the client side if there are several upstreams for NFS 3.
  /// Zero: it is the only one, and its handles are passed through unchanged.
  std::uint32_t handle_tag = 0;
  char prefix[kMaxPathBytes]{};    ///< prefix of its export paths on the client side; empty: none
  std::uint32_t export_count = 0;  ///< number of its paths that are exported; zero: all paths
  std::array<std::array<char, kMaxPathBytes>, kMaxUpstreamExports> exports{};
  /// Generation of the reload that removed this upstream. MOUNT no longer offers it, and the data plane
  /// serves the clients that have mounted it until another upstream takes its slot. Zero: not removed.
  std::uint32_t removed = 0;

  /// Returns whether the gateway's MOUNT service mounts its exports: it serves NFS 3 at the gateway's port.
  bool is_mounted_here() const noexcept { return listen_port == 0 && has_nfs3(); }
  bool has_nfs3() const noexcept {
    constexpr RouteConfig kNfs3{.program = 100003, .version = 3};
    return has_element(std::span(routes).first(smaller_of(route_count, kMaxRoutes)), kNfs3);
  }
};

/// Upstream slots of a data plane, which are alike, and what each of them has. Fixed at start.
struct UpstreamSlots {
  std::uint32_t count = 0;
  std::uint32_t over_tcp = 0;          ///< nonzero: each slot can be used over TCP
  std::uint32_t over_rdma = 0;         ///< maximum number of upstreams over RDMA at one time
  std::uint32_t rdma_connections = 0;  ///< connections per reactor of each upstream over RDMA
  std::uint32_t memory_exports = 0;    ///< nonzero: NFS 3 is served from the exports in memory

  /// Returns whether a slot has what the upstream needs, if it is one of at most `over_rdma` over RDMA.
  bool fit(const UpstreamConfig& upstream) const noexcept {
    return upstream.transport == Transport::Tcp ? over_tcp != 0
                                                : over_rdma != 0 && upstream.connections <= rdma_connections;
  }
};

/// Upstreams that a data plane serves.
struct UpstreamPlaces {
  std::uint32_t count = 0;                                             ///< number of slots
  std::array<std::array<char, kMaxNameBytes>, kMaxUpstreams> names{};  ///< empty: free slot

  bool serves(std::string_view name) const noexcept {
    for (const auto& each : names) {
      const std::string_view all(each.data(), each.size());
      if (all.substr(0, all.find('\0')) == name) return true;
    }
    return false;
  }
};

/// Configuration of the reverse gateway, which forwards calls of TCP clients to an RPC-over-RDMA server.
struct ReverseConfig {
  std::uint32_t in_use = 0;
  PeerAddress listen_address;  ///< all zero: every address of the host, of both families
  std::uint32_t listen_port = 2049;
  PeerAddress server;
  std::uint32_t server_port = 20049;
  std::uint32_t clients = 256;     ///< TCP connections per reactor
  std::uint32_t connections = 16;  ///< per reactor, to the server; each client with calls in progress has one
  std::uint32_t calls = 64;        ///< maximum outstanding per connection; a power of two
  std::uint32_t record_buffers = 32;
  std::uint32_t item_buffers = 256;
  std::uint32_t call_timeout_s = 0;  ///< zero: never
  WithheldConfig withheld;
  PeerAddress mount_address;     ///< the server's MOUNT service over TCP, which our MOUNT service queries
  std::uint32_t mount_port = 0;  ///< zero: queried from rpcbind at that address
  std::uint32_t privileged_clients = 0;  ///< clients whose source port is not below 1024 are refused
  std::uint32_t allowed_count = 0;       ///< zero: every address
  std::array<AllowedPrefix, kMaxAllowed> allowed;
};

inline constexpr std::uint32_t kMaxAddresses = 8;

enum class Driver : std::uint32_t { Loopback, SoftRoce, Verbs };

inline constexpr std::uint32_t kMaxDeviceName = 64;
inline constexpr std::uint32_t kMaxServiceLevel = 7;
inline constexpr std::uint32_t kMaxSharedReceives = 65536;

/// A port of an RDMA device that the kernel drives.
struct VerbsPort {
  char device[kMaxDeviceName]{};
  std::uint32_t port = 1;
};
enum class IdlePolicy : std::uint32_t { Spin, Backoff };

/// Selects how calls to servers give access to their memory on an RDMA device without memory windows.
enum class WindowLess : std::uint32_t {
  Refuse,   ///< not at all: the data plane does not start with a server over RDMA
  Regions,  ///< by a region that is registered for each segment of a call
  Pool,     ///< short segments by a pool that the server can always access, others by regions
};

struct ConfigBlock {
  std::uint64_t generation = 0;
  std::uint32_t reactors = 1;
  /// Nonzero if `cpus` is empty, so that the data plane chooses from its affinity mask.
  std::uint32_t choose_cpus = 1;
  std::array<std::uint32_t, kMaxReactors> cpus{};
  std::array<std::uint32_t, kMaxReactors> numa_nodes{};  ///< nodes of `cpus`, in the data plane's own copy
  Driver driver = Driver::Loopback;
  IdlePolicy idle = IdlePolicy::Backoff;
  char loopback_path[kMaxPathBytes] = "/dev/shm/sluice-loopback";
  std::uint32_t loopback_links = 64;
  std::uint64_t loopback_arena_bytes = 256ull << 20;
  char ethdev[kMaxPathBytes]{};  ///< softroce: DPDK vdev with its arguments, or PCI address
  std::uint32_t address_count = 0;
  std::array<AllowedPrefix, kMaxAddresses> addresses;  ///< softroce: local addresses
  std::uint32_t verbs_port_count = 0;                  ///< verbs; zero: the first usable port
  std::array<VerbsPort, kMaxReactors> verbs_ports{};
  std::uint32_t shared_receives = 0;            ///< verbs, per reactor; zero: Receives per connection
  std::uint32_t memory_windows = 1;             ///< verbs; zero: not used although the device has them
  WindowLess window_less = WindowLess::Refuse;  ///< verbs
  std::uint32_t pool_segment_bytes = 16384;     ///< verbs: longest segment in the pool of WindowLess::Pool
  std::uint32_t traffic_class = 0;              ///< softroce and verbs; zero: the client's request decides
  std::uint32_t service_level = 0xFF;           ///< above kMaxServiceLevel: derived from the traffic class
  std::uint32_t cnp_traffic_class = 192;        ///< softroce: traffic class of congestion notifications
  std::uint32_t gateway_count = 0;
  std::array<PeerAddress, 2> gateways;
  std::uint32_t vlan = 0xFFFF;  ///< 0xFFFF: untagged
  std::uint32_t mtu = 4200;     ///< size of the largest IP packet of the link, in bytes
  std::uint32_t hardware_queues = 1;
  std::uint32_t hugepages = 0;
  std::uint32_t payload_in_place = 0;  ///< softroce: the network card reads payload without a copy
  std::uint32_t dpdk_memory_mib = 256;
  std::uint32_t port = 20049;
  std::uint32_t class_count = 1;  ///< client classes
  std::array<std::array<char, kMaxNameBytes>, kMaxClasses> class_names{};
  std::uint32_t log_level = 2;  ///< log::Level

  std::uint32_t max_connections = 32;  ///< client connections per reactor
  std::uint32_t credits = 64;
  std::uint32_t inline_bytes = 4096;
  std::uint32_t max_version = 2;          ///< RPC-over-RDMA version
  std::uint32_t max_segments = 128;       ///< version 2: limit per transport header received
  std::uint32_t keep_alive_s = 0;         ///< version 2; zero: no keep-alive
  std::uint32_t probe_after_s = 10;       ///< silence after which a peer is probed; zero: never
  std::uint32_t progress_timeout_s = 30;  ///< longest wait of a call for its peer; zero: no limit
  std::uint32_t hold_calls = 0;           ///< version 2: hold calls until the client is authenticated
  /// Time in seconds for which a server that did not answer version 2 is used with version 1 only. Zero: each
  /// connection begins with version 2.
  std::uint32_t version_1_memory_s = 3600;
  std::uint32_t reply_buffer_bytes = 8192;
  std::uint32_t call_buffers = 16;
  std::uint32_t large_reply_buffers = 16;
  std::uint32_t max_io_mib = 1;  ///< maximum data of one READ or WRITE, in MiB
  std::uint32_t reply_chunks_if_needed = 0;

  std::uint64_t memory_bytes = 1ull << 30;  ///< total of all memory exports; resident as files grow
  std::uint32_t max_files = 100000;
  std::array<std::byte, 16> handle_key{};  ///< MAC key of file handles; kept across data plane restarts
  std::uint32_t upstream_count = 0;
  std::array<UpstreamConfig, kMaxUpstreams> upstreams;
  std::uint32_t record_buffers = 128;    ///< per reactor and upstream, for calls with long replies
  std::uint32_t item_buffers = 512;      ///< per reactor and upstream, for calls with short replies
  std::uint32_t max_calls = 1024;        ///< outstanding per reactor and upstream over TCP
  std::uint32_t request_cache = 4096;    ///< calls and replies kept per upstream
  std::uint32_t callback_clients = 64;   ///< per reactor: clients that upstreams may call back
  std::uint32_t upstreams_max = 0;       ///< slots made at start; zero: one for each upstream
  std::uint32_t rdma_upstreams_max = 0;  ///< of them, over RDMA; zero: as many as there are at start
  UpstreamSlots started_slots;           ///< of the running data plane; empty: as the other members require
  ReverseConfig reverse;
  std::uint32_t slow_call_ms = 1000;  ///< calls that take longer are recorded; zero: none

  /// Returns the priority in a VLAN tag for softroce. With verbs, the kernel has a map, if the service level
  /// is not configured.
  std::uint32_t priority() const noexcept {
    return service_level <= kMaxServiceLevel ? service_level : traffic_class >> 5;
  }
  std::uint32_t max_io_bytes() const noexcept { return max_io_mib << 20; }
  /// Returns the number of connections per reactor: from clients, and from the gateways to RPC-over-RDMA
  /// servers.
  std::uint32_t all_connections() const noexcept { return max_connections + connections_to_servers(); }
  std::uint32_t connections_to_servers() const noexcept {
    const UpstreamSlots made = slots();
    return (reverse.in_use != 0 ? reverse.connections : 0) + made.over_rdma * made.rdma_connections;
  }
  /// Returns the upstream slots of the running data plane, or those that a start would make.
  UpstreamSlots slots() const noexcept {
    static_cast<void>(SLUICE_INVARIANT(upstream_count <= kMaxUpstreams, table_index));
    if (started_slots.count != 0) return started_slots;
    constexpr std::uint32_t kUsualConnections = 16;  // of an upstream over RDMA that a reload adds
    std::uint32_t now_over_rdma = 0;
    UpstreamSlots made;
    for (std::uint32_t i = 0; i < upstream_count; ++i) {
      if (upstreams[i].transport != Transport::Rdma) continue;
      ++now_over_rdma;
      made.rdma_connections = larger_of(made.rdma_connections, upstreams[i].connections);
    }
    made.memory_exports = serves_memory() ? 1 : 0;
    made.count = larger_of(upstream_count, smaller_of(upstreams_max, kMaxUpstreams));
    made.over_tcp = upstreams_max != 0 || made.count > now_over_rdma ? 1 : 0;
    made.over_rdma = larger_of(now_over_rdma, smaller_of(rdma_upstreams_max, made.count));
    if (made.over_rdma > now_over_rdma && now_over_rdma == 0) made.rdma_connections = kUsualConnections;
    return made;
  }
  /// Returns the maximum of calls outstanding on one connection to an RDMA upstream: the calls of the client
  /// that uses it, and one liveness probe of the gateway.
  std::uint32_t calls_to_upstream() const noexcept {
    return smaller_of(std::bit_ceil(credits + 1), kMaxCallsToUpstream);
  }
  /// Returns the length of the longest segment that calls to servers copy through a pool; zero: none is
  /// copied.
  std::uint32_t copied_segment_bytes() const noexcept {
    return window_less == WindowLess::Pool ? pool_segment_bytes : 0;
  }
  /// Returns the maximum of calls outstanding at RPC-over-RDMA servers, per reactor.
  std::uint32_t calls_to_servers() const noexcept {
    static_cast<void>(SLUICE_INVARIANT(upstream_count <= kMaxUpstreams, table_index));
    const std::uint32_t reversed = reverse.in_use != 0 ? reverse.connections : 0;
    return reversed * reverse.calls + (connections_to_servers() - reversed) * calls_to_upstream();
  }

  /// Returns the ports that clients connect to.
  std::vector<std::uint16_t> listen_ports() const {
    static_cast<void>(SLUICE_INVARIANT(upstream_count <= kMaxUpstreams, table_index));
    std::vector<std::uint16_t> ports;
    const auto add = [&ports](std::uint32_t each) {
      const auto known = static_cast<std::uint16_t>(each);
      if (!has_element(ports, known)) ports.push_back(known);
    };
    if (reverse.in_use != 0) return ports;
    add(port);
    for (std::uint32_t i = 0; i < upstream_count; ++i)
      if (upstreams[i].listen_port != 0) add(upstreams[i].listen_port);
    return ports;
  }
  /// Returns whether memory exports are served: not by the reverse gateway, and not if NFS 3 is forwarded to
  /// an upstream.
  bool serves_memory() const noexcept {
    static_cast<void>(SLUICE_INVARIANT(upstream_count <= kMaxUpstreams, table_index));
    for (std::uint32_t i = 0; i < upstream_count; ++i)
      if (upstreams[i].has_nfs3()) return false;
    return reverse.in_use == 0;
  }
  /// Returns the port at which clients reach the upstream.
  std::uint32_t port_of(const UpstreamConfig& upstream) const noexcept {
    return upstream.listen_port != 0 ? upstream.listen_port : port;
  }
  /// Returns UpstreamConfig::listen_port of the services for clients that connect to port `asked`.
  std::uint32_t services_at(std::uint32_t asked) const noexcept { return asked == port ? 0 : asked; }

  /// Returns the configured port that `reactor` polls; null: the first usable port. Points into this block.
  const VerbsPort* verbs_port(std::uint32_t reactor) const noexcept {
    static_cast<void>(SLUICE_INVARIANT(verbs_port_count <= kMaxReactors, table_index));
    return verbs_port_count > 0 ? &verbs_ports[reactor % verbs_port_count] : nullptr;
  }

  /// Exports. The index of an entry is part of its file handles, so a path keeps its index.
  std::array<ExportConfig, kMaxExports> exports;
};

/// Returns whether the data plane that has started with `started` can serve an upstream that a reload adds or
/// changes. The loopback driver listens at the ports of the start only, and NFS 3 of the memory exports is
/// served until the data plane ends.
inline bool may_serve(const ConfigBlock& started, const UpstreamConfig& upstream) {
  if (!started.slots().fit(upstream)) return false;
  if (upstream.is_mounted_here() && started.slots().memory_exports != 0) return false;
  return started.driver != Driver::Loopback || upstream.listen_port == 0 ||
         has_element(started.listen_ports(), static_cast<std::uint16_t>(upstream.listen_port));
}

/// Returns whether the other end of the ethdev is a client's process or virtual machine. Such a link is down
/// before the client starts and after it has ended.
inline bool link_is_client(const ConfigBlock& config) noexcept {
  if (config.driver != Driver::SoftRoce) return false;
  const std::string_view ethdev = config.ethdev;
  return ethdev.starts_with("net_memif") || ethdev.starts_with("net_vhost");
}

}  // namespace sluice::segment
