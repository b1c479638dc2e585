// SPDX-License-Identifier: Apache-2.0
//
// Keeps the addresses of all upstreams in the segment up to date (segment/upstream_addresses.h), and
// records which upstreams the data plane reaches. Nothing blocks, because names are resolved in an arena, so
// that other services may share the thread.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "controlplane/onc_rpc/poll_thread.h"
#include "controlplane/tasks/arena.h"
#include "controlplane/upstreams/address_table.h"
#include "dataplane/base/function.h"
#include "dataplane/base/last_value.h"
#include "dataplane/segment/config_block.h"
#include "dataplane/segment/control_tables.h"
#include "dataplane/segment/gateways.h"

namespace sluice::segment {
struct Layout;
}
namespace sluice::events {
class Journal;
}
namespace sluice::segment {
struct Layout;
}

namespace sluice::upstreams {

/// Interval between checks for a new configuration and for failed connections.
inline constexpr std::uint64_t kLookAroundNs = 500'000'000;

/// Concurrent lookups over all upstreams. If there are more names, some of them wait behind slow lookups.
inline constexpr std::uint32_t kLookupThreads = 2;
/// Queue limit of the arena: one lookup per host of this configuration and of the previous one.
inline constexpr std::uint32_t kLookupsQueued = 2 * segment::kMaxUpstreams * segment::kMaxUpstreamHosts;

/// The work of the thread, one poll() at a time.
class AddressService final : public PolledService {
 public:
  using Upstreams = std::vector<segment::UpstreamConfig>;
  /// Returns the total number of failed connections to upstreams.
  using Failures = Function<std::uint64_t()>;

  /// Calls its argument, unless another control plane has taken over.
  using AsOwner = Function<void(const Function<void()>& write)>;

  /// Publishes the addresses that need no lookup. `shared` outlives this object, which is its only writer.
  AddressService(
      const Upstreams& upstreams, segment::Driver driver, segment::SharedUpstreamAddresses& shared,
      Failures failures, LookUp look_up, AsOwner as_owner = [](const auto& write) { write(); });

  /// Sets the upstreams of a new configuration. Any thread.
  void reconfigure(Upstreams upstreams);
  const tasks::ArenaStatistics& lookups() const { return arena_.statistics(); }
  // Functions for the service's thread.
  void prepare(PollSet& set) override;
  void poll(const PollSet& set, std::uint64_t now_ns) override;

 private:
  void read(const Upstreams& upstreams);
  void publish();
  void reconcile(std::uint64_t now_ns);

  const segment::Driver driver_;
  segment::SharedUpstreamAddresses& shared_;
  const Failures failures_;
  const LookUp look_up_;
  const AsOwner as_owner_;
  tasks::Arena arena_{{.threads = kLookupThreads, .queued = kLookupsQueued}};
  std::vector<std::unique_ptr<AddressTable>> books_;
  std::uint64_t failures_seen_ = 0;
  std::uint64_t look_around_ns_ = 0;
  std::mutex mutex_;
  std::optional<Upstreams> next_;  ///< guarded by mutex_
};

/// The addresses of all upstreams on a poll thread.
class AddressManager {
 public:
  /// Attaches the service to `thread`. `thread` and `layout` outlive this object. Throws SetupError.
  AddressManager(onc_rpc::PollThread& thread, const segment::ConfigBlock& config, segment::Layout& layout,
                 AddressService::AsOwner as_owner);
  void reconfigure(const segment::ConfigBlock& config);
  const tasks::ArenaStatistics& lookups() const { return service_.lookups(); }

 private:
  AddressService service_;
  onc_rpc::PollThread::Attachment attachment_;
};

/// Maximum number of unknown operations that an UpstreamMonitor reports of each upstream.
inline constexpr std::size_t kMaxOperationsRefused = 64;

/// Records an event when an upstream becomes unreachable or reachable, judged by the connections of all
/// reactors, and when a gateway refuses an unknown operation for the first time. Runs on the control plane's
/// thread.
class UpstreamMonitor {
 public:
  /// `journal` and `layout` outlive this object.
  UpstreamMonitor(events::Journal& journal, const segment::Layout& layout)
      : journal_(journal), layout_(layout) {}

  /// Samples the state of the gateways. Called periodically. Without a data plane the state of upstreams is
  /// unknown, and nothing changes.
  void poll(const segment::ConfigBlock& config, bool data_plane_alive, std::uint64_t now_ns);

 private:
  enum class Reach : std::uint8_t { Unknown, Lost, Found };
  struct State {
    std::string upstream;  ///< name, because another upstream may take this position later
    Reach reach = Reach::Unknown;
    std::uint64_t lost_ns = 0;
    std::uint32_t looks_without = 0;  ///< consecutive samples with attempts but no connection
  };
  void watch_reach(State& state, std::uint32_t number, std::uint32_t reactors, std::uint64_t now_ns);
  void watch_operations(const std::string& upstream, const LastValue& last);

  events::Journal& journal_;
  const segment::Layout& layout_;
  std::array<State, segment::kMaxUpstreams> states_{};
  std::vector<std::pair<std::string, std::uint32_t>> refused_;  ///< upstreams and operations reported
};

}  // namespace sluice::upstreams
