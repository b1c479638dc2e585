// SPDX-License-Identifier: Apache-2.0
//
// Work for the control plane while the reactors run: configurations that it publishes, upstreams that a
// reload adds, and the kernel's connections of a control plane that ends. Used by the main thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "dataplane/base/file_descriptor.h"
#include "dataplane/base/function.h"
#include "dataplane/base/seqlock.h"
#include "dataplane/gateway/tcp_upstream/upstream_slot.h"
#include "dataplane/process/core.h"
#include "dataplane/segment/channels.h"
#include "dataplane/segment/config_block.h"
#include "dataplane/segment/segment.h"

namespace sluice::process {

/// Changes of upstreams by a reload. An upstream that is served gets its new settings on every reactor. One
/// that the reload adds is assigned a slot on every reactor, either a spare slot or that of an upstream that
/// this or an earlier reload has removed.
class UpstreamHotAdd {
 public:
  /// Slots of one upstream, one per reactor.
  using Places = std::vector<tcp_upstream::UpstreamSlot*>;

  /// `started` is the configuration that the data plane was built from. `places`, indexed by upstream,
  /// outlive this object. `shown` publishes which upstream each slot serves, and outlives it too.
  UpstreamHotAdd(const segment::ConfigBlock& started, std::vector<Places> places,
                 SeqLock<segment::UpstreamPlaces>& shown);

  /// Applies the settings of the upstreams that are served, and assigns slots to those that have been added.
  /// An upstream that fits no slot, or for which no slot is left, waits for the next start.
  void apply(const segment::ConfigBlock& config);
  /// Returns whether every reactor serves the upstreams that it was assigned; apply() is called only then.
  bool taken() const noexcept;

 private:
  bool may_come(const segment::UpstreamConfig& entry, std::uint32_t place) const;
  void offer(std::uint32_t place, const segment::UpstreamConfig& entry);

  const std::vector<Places> on_reactors_;         ///< indexed by upstream
  std::optional<segment::UpstreamConfig> model_;  ///< none: no upstream has its own exports or port
  /// Template of an upstream with its own port; none: such an upstream cannot be added.
  std::optional<segment::UpstreamConfig> at_port_;
  bool with_exports_ = false;  ///< upstreams with their own exports can be added
  segment::UpstreamPlaces places_;
  SeqLock<segment::UpstreamPlaces>& shown_;
};

/// Applies changes that need no restart: exports, added upstreams, log level and the threshold of slow calls.
/// All other changes take effect at the next start.
class ConfigMonitor {
 public:
  using SetSlowCall = Function<void(std::uint64_t ns)>;

  /// Applies the parts of `started` that need no restart. `started` is the configuration that the data plane
  /// was built from. The other arguments outlive the watch.
  ConfigMonitor(segment::Layout& layout, ExportUpdate& exports, UpstreamHotAdd& hot_add,
                SetSlowCall set_slow_call_ns, const segment::ConfigBlock& started);

  /// Applies a newly published configuration. Layout::generation_applied is set when the reactors have
  /// applied it.
  void poll();

 private:
  void apply_at_once(const segment::ConfigBlock& config) const;

  segment::Layout& layout_;
  ExportUpdate& exports_;
  UpstreamHotAdd& hot_add_;
  const SetSlowCall set_slow_call_ns_;
  std::uint64_t generation_ = 0;
  /// Sequence of Layout::config; zero: a configuration published during the start is read as well.
  std::uint32_t sequence_ = 0;
  std::unique_ptr<ExportUpdate::List> pending_;  ///< offered to the reactor
};

/// Preserves the kernel's connections of the verbs driver when the control plane ends, by holding the channel
/// that the control plane has passed (KeptChannel). After that, the kernel's disconnect events are no longer
/// read; the engine detects by its probes that a peer has closed its connection.
class KeptConnections {
 public:
  /// Creates the socket and publishes that no channel is held. Requires that the control plane's part is
  /// mapped. The segment outlives this object. Throws SetupError.
  explicit KeptConnections(segment::Segment& segment);

  /// Receives channels that the control plane has passed, and closes channels that no connection needs.
  /// Bounded; makes system calls.
  void poll();

 private:
  struct Channel {
    std::uint32_t epoch = 0;  ///< epoch of the control plane that opened it
    FileDescriptor descriptor;
  };

  void take_offered();
  bool holds(std::uint32_t epoch) const;
  bool is_orphan(const Channel& channel) const;
  bool in_use(const Channel& channel) const;

  segment::Segment& segment_;
  segment::Layout& layout_;
  segment::DatagramInbox inbox_;
  std::vector<Channel> channels_;
};

}  // namespace sluice::process
