// SPDX-License-Identifier: Apache-2.0
//
// Upstreams that a reload adds: each gets its place on every reactor, a spare one, or that of one that the reload or an
// earlier one has removed. The main thread.
#pragma once

#include <optional>
#include <vector>

#include "dataplane/base/seqlock.h"
#include "dataplane/gateway/tcp_upstream/upstream_place.h"
#include "dataplane/segment/config_block.h"

namespace sluice::process {

class Newcomers {
 public:
  /// The place that an upstream has on each reactor; of one that does not change there is none.
  using Places = std::vector<tcp_upstream::UpstreamPlace*>;

  /// `started` is what the data plane was built from. `places` of its upstreams, by number, outlive it. `shown` says
  /// which place is whose, and outlives it too.
  Newcomers(const segment::ConfigBlock& started, std::vector<Places> places,
            SeqLock<segment::UpstreamPlaces>& shown);

  /// Those that have come since. One that is not served as the spare ones are is left for the next start, and so are
  /// those for which there is no place.
  void look(const segment::ConfigBlock& config);
  /// Every reactor serves what it was given; look() waits for that.
  bool taken() const noexcept;

 private:
  bool may_come(const segment::UpstreamConfig& entry, std::uint32_t place) const;

  const std::vector<Places> on_reactors_;         ///< by number
  std::optional<segment::UpstreamConfig> model_;  ///< none: no upstream has exports or a port of its own
  std::optional<segment::UpstreamConfig>
      at_port_;                ///< what one at a port of its own is like; none: there cannot be one
  bool with_exports_ = false;  ///< there may be one with exports of its own
  segment::UpstreamPlaces places_;
  SeqLock<segment::UpstreamPlaces>& shown_;
};

}  // namespace sluice::process
