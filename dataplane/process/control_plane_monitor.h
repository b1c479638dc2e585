// SPDX-License-Identifier: Apache-2.0
//
// Work for the control plane while the reactors run: configurations that it publishes, upstreams that a
// reload adds, and the kernel's connections of a control plane that ends. Used by the main thread.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "dataplane/base/file_descriptor.h"
#include "dataplane/base/function.h"
#include "dataplane/base/seqlock.h"
#include "dataplane/gateway/slots/upstream_slots.h"
#include "dataplane/gateway/tcp_upstream/upstream_addresses.h"
#include "dataplane/process/export_update.h"
#include "dataplane/segment/channels.h"
#include "dataplane/segment/config_block.h"
#include "dataplane/segment/segment.h"

namespace sluice::process {

/// Applies the upstreams of a reload: the settings of those that are served, and other upstreams in their
/// slots or in free ones.
class UpstreamChanges {
 public:
  /// One slot of each reactor.
  using Slots = std::vector<gateway::UpstreamSlot*>;

  /// `started` is the configuration that the data plane was built from. The slots, by upstream, outlive this
  /// object. `shown` publishes which upstream each slot serves, and outlives it too.
  UpstreamChanges(const segment::ConfigBlock& started, std::vector<Slots> slots,
                  SeqLock<segment::UpstreamPlaces>& shown);

  /// Offers each upstream of the configuration its slot on every reactor. An upstream that fits no slot waits
  /// for the next start, and the slot keeps the one that it has.
  void apply(const segment::ConfigBlock& config);
  /// Returns whether every reactor serves the upstreams that it was offered; apply() is called only then.
  bool taken() const noexcept;

 private:
  void offer(std::uint32_t slot, const segment::UpstreamConfig& entry);

  const std::vector<Slots> slots_;
  const std::unique_ptr<const segment::ConfigBlock> started_;
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
  ConfigMonitor(segment::Layout& layout, const std::vector<ExportUpdate*>& exports,
                UpstreamChanges& upstreams, SetSlowCall set_slow_call_ns,
                const segment::ConfigBlock& started);

  /// Applies a newly published configuration. Layout::generation_applied is set when the reactors have
  /// applied it.
  void poll();

 private:
  void apply_at_once(const segment::ConfigBlock& config) const;
  bool exports_taken() noexcept;

  segment::Layout& layout_;
  /// A list of exports that a reactor has been offered.
  struct ReactorExports {
    ExportUpdate* update;
    std::unique_ptr<ExportUpdate::List> pending;  ///< null: the reactor has returned the list
  };
  std::vector<ReactorExports> exports_;
  UpstreamChanges& upstreams_;
  const SetSlowCall set_slow_call_ns_;
  std::uint64_t generation_ = 0;
  /// Sequence of Layout::config; zero: a configuration published during the start is read as well.
  std::uint32_t sequence_ = 0;
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
