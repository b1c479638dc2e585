// SPDX-License-Identifier: Apache-2.0
//
// Keeps the addresses of all upstreams in the segment up to date (segment/upstream_addresses.h), in a thread of its
// own, on which nothing blocks: names are resolved in an arena.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "controlplane/mount/poll_thread.h"
#include "controlplane/tasks/arena.h"
#include "controlplane/upstreams/address_book.h"
#include "controlplane/upstreams/host_lookup.h"
#include "dataplane/base/function.h"
#include "dataplane/segment/config_block.h"
#include "dataplane/segment/upstream_addresses.h"

namespace sluice::segment {
struct Layout;
}

namespace sluice::upstreams {

/// Period of looking for another configuration, and for connections that have failed.
inline constexpr std::uint64_t kLookAroundNs = 500'000'000;

/// Names that are looked up at a time, of all upstreams. Of more names, some wait for those that a name server is slow with.
inline constexpr std::uint32_t kLookupThreads = 8;
/// Each host once, and those of a configuration before this one.
inline constexpr std::uint32_t kLookupsQueued = 2 * segment::kMaxUpstreams * segment::kMaxUpstreamHosts;

class AddressService final : public mount::PolledService {
 public:
  using Upstreams = std::vector<segment::UpstreamConfig>;
  /// How many connections to upstreams have failed so far.
  using Failures = Function<std::uint64_t()>;

  /// Calls its argument, unless another control plane has taken over.
  using AsOwner = Function<void(const Function<void()>& write)>;

  /// Writes what needs no resolving. `shared` outlives it, and has no other writer.
  AddressService(
      const Upstreams& upstreams, segment::SharedUpstreamAddresses& shared, Failures failures, LookUp look_up,
      AsOwner as_owner = [](const auto& write) { write(); });

  /// Any thread: the upstreams of a new configuration.
  void reconfigure(Upstreams upstreams);
  const tasks::ArenaStatistics& lookups() const { return arena_.statistics(); }
  // The service's thread.
  void prepare(mount::PollSet& set) override;
  void turn(const mount::PollSet& set, std::uint64_t now_ns) override;

 private:
  void read(const Upstreams& upstreams);
  void publish();
  void look_around(std::uint64_t now_ns);

  segment::SharedUpstreamAddresses& shared_;
  const Failures failures_;
  const LookUp look_up_;
  const AsOwner as_owner_;
  tasks::Arena arena_{{.threads = kLookupThreads, .queued = kLookupsQueued}};
  std::vector<std::unique_ptr<AddressBook>> books_;
  std::uint64_t failures_seen_ = 0;
  std::uint64_t look_around_ns_ = 0;
  std::mutex mutex_;
  std::optional<Upstreams> next_;  ///< under mutex_
};

class AddressKeeper {
 public:
  /// Starts the thread. `layout` outlives it. Throws SetupError.
  AddressKeeper(const segment::ConfigBlock& config, segment::Layout& layout,
                AddressService::AsOwner as_owner);
  void reconfigure(const segment::ConfigBlock& config);
  const tasks::ArenaStatistics& lookups() const { return service_.lookups(); }

 private:
  AddressService service_;
  mount::PollThread thread_;
};

}  // namespace sluice::upstreams
