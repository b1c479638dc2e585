// SPDX-License-Identifier: Apache-2.0
//
// The [[export]] and [[upstream]] tables and the [reverse] table of a configuration, and how they share the
// paths and programs. Used at setup and reload; single-threaded.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "controlplane/config/config.h"
#include "controlplane/json/json.h"
#include "dataplane/segment/config_block.h"

namespace sluice::config {

/// Maximum quota of one export, in MiB.
inline constexpr std::uint32_t kMaxQuotaMib = 1u << 20;

/// Returns true if one path lies inside the other. Clients would take it for a folder of the other export,
/// although each export has its own files.
bool overlap(const std::string& one, const std::string& other);
/// Throws ConfigError if an [[export]] of a file does not state its clients, which can be the result of a
/// truncated file.
void check_clients_of_exports(const Config& config);

bool is_same(const segment::RouteConfig& one, const segment::RouteConfig& other);
/// Returns true if the upstream serves the program.
bool takes(const segment::UpstreamConfig& upstream, const segment::RouteConfig& route);
/// Returns the text form of the configuration: "nfs3", or numbers for a program without a name there.
std::string to_text(const segment::RouteConfig& route);

/// Limit of concurrent calls to RPC-over-RDMA servers. Each call takes two memory windows, whose number a
/// device limits.
inline constexpr std::uint32_t kMaxCallsToServers = 2048;

/// Returns the upstream to which `route` is forwarded for clients of the gateway's own port, or null. Points
/// into `block`.
const segment::UpstreamConfig* upstream_of(const segment::ConfigBlock& block,
                                           const segment::RouteConfig& route);
/// Returns true if NFS version 3 is served from the exports in memory.
bool serves_exports(const segment::ConfigBlock& block);
/// Returns true if NFS version 3 is served from the exports in memory when [reverse] is ignored.
bool serves_exports_beside_upstreams(const segment::ConfigBlock& block);
Json describe_upstreams(const segment::ConfigBlock& block);

/// Returns the upstream with this name, as a pointer into `block`, or null.
const segment::UpstreamConfig* upstream_named(const segment::ConfigBlock& block, std::string_view name);
/// Slot of a running data plane at a reload.
struct PlannedSlot {
  const segment::UpstreamConfig* now = nullptr;   ///< upstream in the slot; null: free
  const segment::UpstreamConfig* then = nullptr;  ///< upstream after the reload; null: as now
  const segment::UpstreamConfig* served() const { return then != nullptr ? then : now; }
};
/// Plan of a reload for the upstreams. The pointers are into the two configurations.
struct UpstreamPlan {
  std::vector<PlannedSlot> slots;
  std::vector<std::string_view> later;  ///< names of upstreams that wait for the next start
};
/// Plans the change from `running` to `next` on a data plane that has `places`.
UpstreamPlan plan_upstreams(const segment::ConfigBlock& running, const segment::ConfigBlock& next,
                            const segment::UpstreamPlaces& places);

/// Returns the server's MOUNT service in the form of an upstream.
segment::UpstreamConfig mount_of_server(const segment::ReverseConfig& reverse);

}  // namespace sluice::config
