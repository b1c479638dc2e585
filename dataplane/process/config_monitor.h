// SPDX-License-Identifier: Apache-2.0
//
// Configurations that the control plane publishes while the data plane runs. Used by the main thread.
#pragma once

#include <cstdint>
#include <memory>

#include "dataplane/base/function.h"
#include "dataplane/process/exports.h"
#include "dataplane/process/upstream_hot_add.h"
#include "dataplane/segment/segment.h"

namespace sluice::process {

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

}  // namespace sluice::process
