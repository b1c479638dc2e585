// SPDX-License-Identifier: Apache-2.0
//
// Upstreams that a reload adds: each is assigned a slot on every reactor, either a spare slot or that of an
// upstream that this or an earlier reload has removed. Used by the main thread.
#pragma once

#include <optional>
#include <vector>

#include "dataplane/base/seqlock.h"
#include "dataplane/gateway/tcp_upstream/upstream_slot.h"
#include "dataplane/segment/config_block.h"

namespace sluice::process {

class UpstreamHotAdd {
 public:
  /// Slots of one upstream, one per reactor; empty for an upstream that cannot change.
  using Places = std::vector<tcp_upstream::UpstreamSlot*>;

  /// `started` is the configuration that the data plane was built from. `places`, indexed by upstream,
  /// outlive this object. `shown` publishes which upstream each slot serves, and outlives it too.
  UpstreamHotAdd(const segment::ConfigBlock& started, std::vector<Places> places,
                 SeqLock<segment::UpstreamPlaces>& shown);

  /// Assigns slots to upstreams that have been added. An upstream that is served differently from the spare
  /// slots, or for which no slot is left, waits for the next start.
  void apply(const segment::ConfigBlock& config);
  /// Returns whether every reactor serves the upstreams that it was assigned; apply() is called only then.
  bool taken() const noexcept;

 private:
  bool may_come(const segment::UpstreamConfig& entry, std::uint32_t place) const;

  const std::vector<Places> on_reactors_;         ///< indexed by upstream
  std::optional<segment::UpstreamConfig> model_;  ///< none: no upstream has its own exports or port
  /// Template of an upstream with its own port; none: such an upstream cannot be added.
  std::optional<segment::UpstreamConfig> at_port_;
  bool with_exports_ = false;  ///< upstreams with their own exports can be added
  segment::UpstreamPlaces places_;
  SeqLock<segment::UpstreamPlaces>& shown_;
};

}  // namespace sluice::process
