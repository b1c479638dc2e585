// SPDX-License-Identifier: Apache-2.0
//
// The table of all keys. A new key is one row here. If the data plane checks its range too, the range is a
// row of config_ranges.h. Rules that involve several keys are beside the functions that read their tables.
#include "controlplane/config/keys.h"

#include <vector>

#include "controlplane/config/key.h"
#include "controlplane/config/readers.h"
#include "dataplane/base/net_address.h"

namespace sluice::config {
namespace {

using segment::ConfigBlock;
using segment::kMaxPort;
using segment::ReverseConfig;
using segment::WithheldConfig;
using enum Scope;

/// Describes the range of a key that its kind does not describe.
template <typename Owner>
constexpr Key<Owner> ranged(Key<Owner> key, const char* range) {
  key.row.range = range;
  return key;
}

template <typename Enum>
constexpr std::uint32_t number_of(Enum value) {
  return static_cast<std::uint32_t>(value);
}

constexpr Word kLogLevels[] = {{"debug", 0}, {"info", 0}, {"warn", 0}, {"error", 0}};
constexpr Key<Config> kTopKeys[] = {
    text<&Config::segment>("segment", 64, BothPlanes,
                           "name in `/dev/shm`, or a path on a tmpfs that others cannot write to (units: "
                           "`/run/sluice/segment/sluice`). The data plane has it by `--segment`"),
    path<&Config::exports_directory>("exports_directory", 255, Live,
                                     "its files `*.toml` have further exports, and `sluicectl` saves exports "
                                     "there; empty: none"),
    choice<&Config::log_level>(
        "log_level", kLogLevels, Live,
        "\"debug\" shows no more than \"info\": connections and their ends are events"),
};

constexpr Word kIdle[] = {{"spin", number_of(segment::IdlePolicy::Spin)},
                          {"backoff", number_of(segment::IdlePolicy::Backoff)}};
constexpr Key<ConfigBlock> kReactorKeys[] = {
    integer<&ConfigBlock::reactors>("count", BothPlanes,
                                    "polling cores. One owns the exports; all serve connections"),
    choice<&ConfigBlock::idle>("idle", kIdle, BothPlanes, "\"backoff\" sleeps after some time without work"),
    {{.name = "cpus",
      .kind = Kind::IntegerList,
      .range = "`count` numbers from 0 to 127",
      .preset = "chosen",
      .scope = BothPlanes,
      .sentence = "their processors. Default: from the affinity mask"},
     read_cpus,
     [](const KeyRow&, const ConfigBlock& block) {
       if (block.choose_cpus != 0) return Json();
       return Json(std::vector<std::uint32_t>(block.cpus.begin(), block.cpus.begin() + block.reactors));
     },
     nullptr},
};

constexpr Word kReplyChunks[] = {{"always", 0}, {"if-needed", 1}};
constexpr Key<ConfigBlock> kTransportKeys[] = {
    integer<&ConfigBlock::port>("port", BothPlanes, "NFS over RDMA (RFC 8267)"),
    integer<&ConfigBlock::credits>("credits", BothPlanes,
                                   "outstanding calls of a connection, a call slot each"),
    integer<&ConfigBlock::inline_bytes>("inline_bytes", BothPlanes, "size of Receives; version 2 needs 4096"),
    integer<&ConfigBlock::max_version>("max_version", BothPlanes, "highest version of RPC-over-RDMA"),
    integer<&ConfigBlock::max_segments>("max_segments", BothPlanes, "version 2: segments of a call"),
    integer<&ConfigBlock::keep_alive_s>("keep_alive_s", BothPlanes,
                                        "version 2: idle time before a grant; 0: never"),
    integer<&ConfigBlock::probe_after_s>("probe_after_s", BothPlanes,
                                         "silence before a peer has to acknowledge an empty RDMA Write, or "
                                         "is disconnected; 0: never"),
    integer<&ConfigBlock::progress_timeout_s>(
        "progress_timeout_s", BothPlanes,
        "longest wait of a call for its client, and of a continued message for its last part; then "
        "disconnected. 0: no limit"),
    integer<&ConfigBlock::version_1_memory_s>(
        "version_1_memory_s", BothPlanes,
        "`[reverse]`: time for which a server without version 2 is called with version 1 at once; 0: each "
        "connection begins with version 2"),
    integer<&ConfigBlock::max_connections>("max_connections", BothPlanes, "connections per reactor"),
    integer<&ConfigBlock::call_buffers>("call_buffers", BothPlanes,
                                        "long calls in assembly; a client has half at most, further ones "
                                        "wait"),
    integer<&ConfigBlock::large_reply_buffers>("large_reply_buffers", BothPlanes,
                                               "replies above 16 KiB, likewise"),
    integer<&ConfigBlock::max_io_mib>("max_io_mib", BothPlanes,
                                      "READ and WRITE of exports and TCP upstreams; sizes long buffers"),
    choice<&ConfigBlock::reply_chunks_if_needed>(
        "reply_chunks", kReplyChunks, BothPlanes,
        "use an offered Reply chunk always, or only for replies that do not fit inline"),
};

constexpr Word kDrivers[] = {{"loopback", number_of(segment::Driver::Loopback)},
                             {"softroce", number_of(segment::Driver::SoftRoce)},
                             {"verbs", number_of(segment::Driver::Verbs)}};
constexpr Word kWindowLess[] = {{"refuse", number_of(segment::WindowLess::Refuse)},
                                {"regions", number_of(segment::WindowLess::Regions)},
                                {"pool", number_of(segment::WindowLess::Pool)}};
constexpr Key<ConfigBlock> kDeviceKeys[] = {
    choice<&ConfigBlock::driver>("driver", kDrivers, BothPlanes,
                                 "loopback: between processes of this machine; softroce: RoCEv2 on a network "
                                 "interface; verbs: an RDMA NIC"),
    ranged(path<&ConfigBlock::loopback_path>("loopback_path", segment::kMaxPathBytes - 1, BothPlanes,
                                             "loopback: the fabric's file"),
           "a path"),
    integer<&ConfigBlock::loopback_links>("loopback_links", BothPlanes, "loopback: number of links"),
    mebibytes<&ConfigBlock::loopback_arena_bytes>("loopback_arena_mib", {16, segment::kMaxLoopbackArenaMib},
                                                  BothPlanes, "loopback: RDMA memory of each client"),
    text<&ConfigBlock::ethdev>("ethdev", segment::kMaxPathBytes - 1, BothPlanes,
                               "softroce: DPDK virtual device with arguments, or PCI address"),
    prefixes<At<&ConfigBlock::addresses>, At<&ConfigBlock::address_count>, ConfigBlock>(
        "addresses", BothPlanes, "softroce: local addresses with prefix lengths, IPv4 and IPv6"),
    {{.name = "gateways",
      .kind = Kind::List,
      .range = "one per family",
      .scope = BothPlanes,
      .sentence = "softroce: next hops outside these networks"},
     read_gateways,
     [](const KeyRow&, const ConfigBlock& block) {
       Json list = Json::array();
       for (std::uint32_t i = 0; i < block.gateway_count; ++i) list.push_back(to_string(block.gateways[i]));
       return list;
     },
     nullptr},
    optional_integer<&ConfigBlock::vlan>("vlan", {0, 4094}, "untagged", BothPlanes,
                                         "softroce: VLAN tag; 0: a tag with a priority only. A priority "
                                         "needs a tag"),
    integer<&ConfigBlock::cnp_traffic_class>("cnp_traffic_class", BothPlanes,
                                             "softroce: class of congestion notifications, which should "
                                             "overtake data: DSCP 48, priority 6"),
    integer<&ConfigBlock::mtu>("mtu", BothPlanes,
                               "softroce: largest IP packet. 4200 carries RoCE's path MTU of 4096"),
    integer<&ConfigBlock::hardware_queues>("hardware_queues", BothPlanes,
                                           "softroce: queues of the interface; other reactors share them"),
    flag<&ConfigBlock::hugepages>("hugepages", BothPlanes, "softroce: DPDK may use huge pages"),
    flag<&ConfigBlock::payload_in_place>("payload_in_place", BothPlanes,
                                         "softroce: a PCI card behind an IOMMU reads READ payload from the "
                                         "files; all memory is resident from the start"),
    integer<&ConfigBlock::dpdk_memory_mib>("dpdk_memory_mib", BothPlanes, "softroce: packet buffers"),
    integer<&ConfigBlock::shared_receives>("shared_receives", BothPlanes,
                                           "verbs: Receives in a shared queue per reactor; 0: a queue per "
                                           "connection"),
    flag<&ConfigBlock::memory_windows>("memory_windows", BothPlanes,
                                       "verbs: false: the device is used as if it had no memory windows"),
    choice<&ConfigBlock::window_less>(
        "window_less", kWindowLess, BothPlanes,
        "verbs: how calls to servers expose memory on a device without memory windows: refuse: such a device "
        "only serves clients; regions: a region is registered for each segment; pool: short segments are "
        "copied through memory that the server can always access. See security.md"),
    integer<&ConfigBlock::pool_segment_bytes>("pool_segment_bytes", BothPlanes,
                                              "verbs: longest segment that window_less = \"pool\" copies"),
    integer<&ConfigBlock::traffic_class>("traffic_class", BothPlanes,
                                         "softroce, verbs: DSCP and ECN (4 * DSCP) of our packets, such as "
                                         "a lossless class; 0: as the client requests"),
    optional_integer<&ConfigBlock::service_level>(
        "service_level", {0, segment::kMaxServiceLevel}, "unset", BothPlanes,
        "softroce, verbs: VLAN priority. Unset: softroce: upper three bits of the traffic class; verbs: the "
        "kernel's priority map"),
    {{.name = "devices",
      .kind = Kind::List,
      .range = "8, at most one per reactor",
      .scope = BothPlanes,
      .sentence = "verbs: devices, \"/2\" for a second port; reactors are assigned in turn"},
     read_devices,
     [](const KeyRow&, const ConfigBlock& block) {
       Json list = Json::array();
       for (std::uint32_t i = 0; i < block.verbs_port_count; ++i)
         list.push_back(block.verbs_ports[i].device + ('/' + std::to_string(block.verbs_ports[i].port)));
       return list;
     },
     nullptr},
};

constexpr Key<ConfigBlock> kMemoryKeys[] = {
    mebibytes<&ConfigBlock::memory_bytes>("size_mib", {16, segment::kMaxMemoryMib}, BothPlanes,
                                          "memory of all exports, resident as files grow"),
    integer<&ConfigBlock::max_files>("max_files", BothPlanes,
                                     "files of all exports; half is divided equally"),
};

constexpr Key<Config> kAdminKeys[] = {
    path<&Config::admin_socket>("socket", 100, ControlPlane,
                                "for `sluicectl`. Root and the control plane's user have all rights"),
    text<&Config::admin_change_group>("change_group", 64, ControlPlane, "group with all rights"),
    text<&Config::admin_read_group>("read_group", 64, ControlPlane, "group that may only query"),
};

constexpr Key<Config> kMetricsKeys[] = {
    ranged(text<&Config::metrics_address>("address", 100, ControlPlane, "Prometheus exporter; empty: none"),
           "HOST:PORT"),
};

constexpr Key<Config> kPageKeys[] = {
    ranged(text<&Config::page_address>("address", 100, ControlPlane,
                                       "read-only status page; empty: none. Every local user can read it"),
           "address:PORT"),
    flag<&Config::page_allow_remote>("allow_remote", ControlPlane,
                                     "permits an address that others reach, without authentication"),
    text<&Config::page_name>("name", 253, ControlPlane,
                             "host name of browsers; empty: addresses and localhost"),
};

constexpr Key<Config> kEventsKeys[] = {
    path<&Config::events_file>("file", 255, ControlPlane,
                               "JSON lines, may be renamed for rotation; empty: none"),
    flag<&Config::events_journald>("journald", ControlPlane, "entries in the journal with `SLUICE_EVENT`"),
};

constexpr Key<ConfigBlock> kObservabilityKeys[] = {
    integer<&ConfigBlock::slow_call_ms>("slow_call_ms", Live,
                                        "longer calls are listed by `sluicectl slow`; 0: none"),
};

constexpr Key<Config> kMountKeys[] = {
    flag<&Config::mount_enabled>("enabled", ControlPlane, "MOUNT 3, TCP and UDP, IPv4 and IPv6"),
    flag<&Config::mount_rpcbind>("rpcbind", ControlPlane,
                                 "registers MOUNT, and NFS for `[reverse]`; existing registrations stay"),
    integer<&Config::mount_port>("port", {0, kMaxPort}, ControlPlane, "0: any free port"),
};

constexpr Key<Config> kKerberosKeys[] = {
    flag<&Config::kerberos_enabled>("enabled", ControlPlane,
                                    "forwards the calls that establish RPCSEC_GSS contexts"),
    integer<&Config::kerberos_port>("port", {0, kMaxPort}, ControlPlane, "TCP port; clients use no other"),
};

constexpr Key<Config> kLocksKeys[] = {
    flag<&Config::locks_enabled>("enabled", ControlPlane, "serves NLM version 4 and NSM"),
    integer<&Config::locks_port>("port", {0, kMaxPort}, ControlPlane,
                                 "TCP and UDP; 0: any free port, which rpcbind may keep if the control "
                                 "plane is killed"),
    flag<&Config::locks_rpcbind>("rpcbind", ControlPlane,
                                 "registers both with this host's rpcbind, which clients and the upstream "
                                 "query"),
    text<&Config::locks_name>("name", 255, ControlPlane,
                              "the gateway's name at the upstream; empty: the host's name"),
    path<&Config::locks_state>("state", 255, ControlPlane,
                               "file of locks, also unanswered ones; empty: none"),
};

constexpr Key<Config> kPolicyKeys[] = {
    integer<&Config::policy_slots>("slots", {0, 1u << 24}, Live,
                                   "calls of a reactor; 0: `max_connections` times `credits`"),
    integer<&Config::policy_idle_s>("idle_s", {1, 86400}, Live,
                                    "idle time before others may use all but `min_credits`"),
    integer<&Config::policy_interval_ms>("interval_ms", {50, 60000}, Live, "time between computations"),
};

constexpr Key<Config> kAdmissionKeys[] = {
    integer<&Config::max_connections>("max_connections",
                                      {0, std::uint64_t{segment::kMaxConnections} * segment::kMaxReactors},
                                      Live, "of all reactors; 0: as resources allow"),
    integer<&Config::max_requests_per_second>("max_requests_per_second", {1, 1'000'000}, Live,
                                              "connection requests"),
    integer<&Config::max_requests_per_second_per_client>("max_requests_per_second_per_client", {1, 1'000'000},
                                                         Live, "connection requests of one client"),
};

constexpr Word kMethods[] = {{"none", 0}, {"psk", 0}};
constexpr Key<Config> kHostAuthenticationKeys[] = {
    choice<&Config::authentication_method>("method", kMethods, ControlPlane, "\"psk\": pre-shared keys"),
    flag<&Config::authentication_required>("required", BothPlanes,
                                           "holds calls until the host is authenticated; refuses version 1"),
    {{.name = "name",
      .kind = Kind::Text,
      .limits = {1, kMaxHostNameBytes},
      .scope = ControlPlane,
      .sentence = "name of this host"},
     [](Checker& check, const toml::table& table, const KeyRow& row, Config& config) {
       read_host_name(check, table, row, config.authentication_name);
     },
     [](const KeyRow&, const Config& config) { return Json(config.authentication_name); },
     nullptr},
    integer<&Config::authentication_timeout_s>(
        "timeout_s", {1, 600}, Live, "time limit of the authentication; then the host is disconnected"),
};

constexpr Key<ConfigBlock> kForwardKeys[] = {
    integer<&ConfigBlock::record_buffers>("record_buffers", BothPlanes,
                                          "`max_io_mib` each, per reactor and upstream: calls whose replies "
                                          "may exceed 16 KiB; further ones wait"),
    integer<&ConfigBlock::item_buffers>("item_buffers", BothPlanes, "16 KiB each: shorter replies with data"),
    power_of_two<&ConfigBlock::max_calls>("max_calls", BothPlanes,
                                          "calls outstanding per reactor and upstream (TCP)"),
    integer<&ConfigBlock::request_cache>("request_cache", BothPlanes,
                                         "2 KiB each, per upstream: calls that must not be executed twice, "
                                         "with replies"),
    integer<&ConfigBlock::callback_clients>("callback_clients", BothPlanes,
                                            "per reactor: clients that upstreams may call back (NFS 4.1 "
                                            "delegations)"),
    integer<&ConfigBlock::upstreams_max>("upstreams_max", BothPlanes,
                                         "slots for upstreams, which reloads assign; 0: as many as at start"),
    integer<&ConfigBlock::rdma_upstreams_max>("rdma_upstreams_max", BothPlanes,
                                              "of them, over RDMA at one time; 0: as many as at start"),
};

/// An address of [reverse].
template <auto Member>
constexpr Key<ConfigBlock> address(const char* name, const char* sentence) {
  return {
      {.name = name, .kind = Kind::Text, .range = "an address", .scope = BothPlanes, .sentence = sentence},
      [](Checker& check, const toml::table& table, const KeyRow& row, ConfigBlock& block) {
        constexpr bool kOverRdma = Member == &ReverseConfig::server;
        if constexpr (Member == &ReverseConfig::mount_address)
          block.reverse.mount_address = block.reverse.server;
        const Zone zone =
            kOverRdma && block.driver != segment::Driver::Verbs ? Zone::OfDevice : Zone::OfKernel;
        read_address(check, table, row.name, zone, block.reverse.*Member);
      },
      [](const KeyRow&, const ConfigBlock& block) {
        const PeerAddress& value = block.reverse.*Member;
        return Json(value == PeerAddress{} ? std::string() : to_string(value));
      },
      nullptr};
}

constexpr auto kReverseIn = &ConfigBlock::reverse;
constexpr Key<ConfigBlock> kReverseKeys[] = {
    flag<kReverseIn, &ReverseConfig::in_use>("enabled", BothPlanes, "NFS over TCP is served"),
    address<&ReverseConfig::listen_address>("listen_address",
                                            "address of one interface; empty: all, IPv4 and IPv6"),
    integer<kReverseIn, &ReverseConfig::listen_port>("listen_port", BothPlanes, "port of clients"),
    address<&ReverseConfig::server>("server",
                                    "the server's address; the driver `loopback` uses `loopback_path`"),
    integer<kReverseIn, &ReverseConfig::server_port>("server_port", BothPlanes, "the server's port"),
    integer<kReverseIn, &ReverseConfig::clients>(
        "clients", BothPlanes, "TCP connections per reactor; further ones go to other reactors or wait"),
    integer<kReverseIn, &ReverseConfig::connections>(
        "connections", BothPlanes,
        "connections to the server per reactor, with registered memory; times `calls` at most 2048"),
    power_of_two<kReverseIn, &ReverseConfig::calls>(
        "calls", BothPlanes, "outstanding per connection, one of them for probes; further ones wait"),
    integer<kReverseIn, &ReverseConfig::record_buffers>(
        "record_buffers", BothPlanes,
        "1 MiB each, per reactor: long calls and replies; a client has at most a quarter"),
    integer<kReverseIn, &ReverseConfig::item_buffers>("item_buffers", BothPlanes,
                                                      "16 KiB each, per reactor: shorter calls and replies"),
    integer<kReverseIn, &ReverseConfig::call_timeout_s>(
        "call_timeout_s", BothPlanes,
        "disconnects a client whose call has no reply, so that it retransmits; 0: never"),
    choice<kReverseIn, &ReverseConfig::withheld, &WithheldConfig::pnfs>(
        "pnfs", kWithheld, BothPlanes, "\"pass\" shows NFS 4 clients data servers, which they use directly"),
    choice<kReverseIn, &ReverseConfig::withheld, &WithheldConfig::referrals>(
        "referrals", kWithheld, BothPlanes, "\"pass\" shows NFS 4 clients other locations of a file system"),
    address<&ReverseConfig::mount_address>("mount_address", "the server's MOUNT 3 service; empty: `server`"),
    integer<kReverseIn, &ReverseConfig::mount_port>("mount_port", BothPlanes,
                                                    "its port; 0: rpcbind is queried"),
    prefixes<At<kReverseIn, &ReverseConfig::allowed>, At<kReverseIn, &ReverseConfig::allowed_count>,
             ConfigBlock>("allowed", BothPlanes, "clients, also of MOUNT; empty: all"),
    flag<kReverseIn, &ReverseConfig::privileged_clients>(
        "privileged_clients", BothPlanes, "refuses client ports of 1024 and above, also by MOUNT"),
};

}  // namespace

std::span<const Section> sections() {
  // [policy] has keys of two kinds.
  static const Section kSections[] = {
      {"", Keys<Config>(kTopKeys)},
      {"reactor", Keys<ConfigBlock>(kReactorKeys)},
      {"transport", Keys<ConfigBlock>(kTransportKeys)},
      {"device", Keys<ConfigBlock>(kDeviceKeys)},
      {"memory", Keys<ConfigBlock>(kMemoryKeys)},
      {"forward", Keys<ConfigBlock>(kForwardKeys)},
      {"reverse", Keys<ConfigBlock>(kReverseKeys)},
      {"policy", Keys<Config>(kPolicyKeys)},
      {"policy", class_limits()},
      {"admission", Keys<Config>(kAdmissionKeys)},
      {"host_authentication", Keys<Config>(kHostAuthenticationKeys)},
      {"admin", Keys<Config>(kAdminKeys)},
      {"metrics", Keys<Config>(kMetricsKeys)},
      {"page", Keys<Config>(kPageKeys)},
      {"events", Keys<Config>(kEventsKeys)},
      {"observability", Keys<ConfigBlock>(kObservabilityKeys)},
      {"mount", Keys<Config>(kMountKeys)},
      {"kerberos", Keys<Config>(kKerberosKeys)},
      {"locks", Keys<Config>(kLocksKeys)},
  };
  return kSections;
}

}  // namespace sluice::config
