// SPDX-License-Identifier: Apache-2.0
#include "controlplane/server_settings.h"

#include <sys/random.h>
#include <unistd.h>

#include <climits>
#include <ctime>
#include <string>
#include <utility>
#include <vector>

#include "controlplane/config/reverse.h"
#include "controlplane/config/upstreams.h"
#include "controlplane/mount/allowed.h"
#include "controlplane/mount/group_exports.h"
#include "controlplane/mount/registration.h"
#include "controlplane/mount/segment_exports.h"
#include "controlplane/mount/upstream_exports.h"
#include "dataplane/segment/heartbeat.h"
#include "dataplane/ulb/nfs3.h"

namespace sluice::controlplane {

std::unique_ptr<mount::Exports> mount_exports(const segment::ConfigBlock& block,
                                              const segment::Layout& layout,
                                              mount::MountStatistics& statistics) {
  const auto of_upstream = [&layout, &statistics](const segment::UpstreamConfig& upstream) {
    return std::make_unique<mount::UpstreamExports>(
        upstream,
        [&layout, name = std::string(upstream.name)] {
          return segment::answering_address(layout.upstream_addresses, name);
        },
        statistics);
  };
  mount::GroupExports::Newcomers newcomers{.in_force = [&layout] { return mount::group_in_force(layout); },
                                           .make = of_upstream};
  std::vector<mount::GroupExports::Member> group;
  for (std::uint32_t i = 0; i < block.upstream_count; ++i) {
    const segment::UpstreamConfig& upstream = block.upstreams[i];
    if (upstream.handle_tag != 0) group.push_back({upstream, of_upstream(upstream)});
  }
  if (!group.empty())
    return std::make_unique<mount::GroupExports>(
        std::move(group), [&layout](const std::string& name) { return mount::export_paths_of(layout, name); },
        statistics, std::move(newcomers));
  if (const auto* upstream = config::upstream_of(block, {ulb::kNfsProgram, ulb::kNfs3Version}))
    return of_upstream(*upstream);
  const segment::ReverseConfig& reverse = block.reverse;
  if (reverse.in_use != 0)
    return std::make_unique<mount::UpstreamExports>(
        config::mount_of_server(reverse), [address = reverse.mount_address] { return address; }, statistics,
        mount::kRpcbindPort,
        reverse.privileged_clients != 0 ? mount::UpstreamExports::Ports::Privileged
                                        : mount::UpstreamExports::Ports::Any);
  return std::make_unique<mount::SegmentExports>(layout);
}

std::optional<mount::NfsListener> nfs_listener(const segment::ConfigBlock& block,
                                               const segment::Layout& layout) {
  const segment::ReverseConfig& reverse = block.reverse;
  if (reverse.in_use == 0) return std::nullopt;
  return mount::NfsListener{
      .address = reverse.listen_address,
      .port = static_cast<std::uint16_t>(reverse.listen_port),
      .serves = [&layout] { return segment::alive(layout.data_plane, segment::monotonic_ns()); }};
}

locks::LockSettings lock_settings(const config::Config& config, const segment::Layout& layout) {
  const segment::UpstreamConfig upstream =
      *config::upstream_of(config.block, {ulb::kNfsProgram, ulb::kNfs3Version});
  char host[HOST_NAME_MAX + 1] = "";
  ::gethostname(host, sizeof host - 1);
  const auto& shared = layout.upstream_addresses;
  locks::ProxySettings proxy;
  proxy.upstream = upstream.name;
  proxy.upstream_names.emplace_back(upstream.name);
  for (std::uint32_t i = 0; i < upstream.host_count; ++i)
    proxy.upstream_names.emplace_back(upstream.hosts[i].data());
  proxy.privileged_port = upstream.privileged_port != 0;
  proxy.name = config.locks_name.empty() ? host : config.locks_name;
  proxy.where = [&shared, name = proxy.upstream] { return segment::answering_address(shared, name); };
  proxy.is_upstream = [&shared, name = proxy.upstream](const PeerAddress& address) {
    return segment::has_address(shared, name, address);
  };
  // Of the seconds since 2020, so that it is higher after each restart.
  constexpr std::int64_t kYear2020 = 1'577'836'800;
  proxy.first_state = static_cast<std::uint32_t>(std::time(nullptr) - kYear2020) * 2 + 1;
  std::uint32_t random = 0;
  if (::getrandom(&random, sizeof random, 0) == static_cast<ssize_t>(sizeof random))
    proxy.first_id = random % (1u << 30) + 1;
  return {.port = config.locks_port,
          .rpcbind = config.locks_rpcbind ? mount::kRpcbindSocket : "",
          .may_lock =
              [upstream](const PeerAddress& address) {
                return mount::allowed(upstream.allowed, upstream.allowed_count, address);
              },
          .state = config.locks_state,
          .proxy = std::move(proxy)};
}

}  // namespace sluice::controlplane
