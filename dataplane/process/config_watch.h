// SPDX-License-Identifier: Apache-2.0
//
// The configuration as the control plane publishes it while the data plane runs. The main thread.
#pragma once

#include <cstdint>
#include <memory>

#include "dataplane/base/function.h"
#include "dataplane/process/exports.h"
#include "dataplane/process/newcomers.h"
#include "dataplane/segment/segment.h"

namespace sluice::process {

/// Brings changes into force that need no restart: exports, upstreams that come, log level and the limit of slow calls.
/// Everything else takes effect with the next start.
class ConfigWatch {
 public:
  using SetSlowCall = Function<void(std::uint64_t ns)>;

  /// `started` is what the data plane was built from. The others outlive the watch.
  ConfigWatch(segment::Layout& layout, ExportUpdate& exports, Newcomers& newcomers,
              SetSlowCall set_slow_call_ns, const segment::ConfigBlock& started);

  /// Acts on what has been published since. Layout::generation_applied follows when the reactors have taken it.
  void poll();

 private:
  void apply_at_once(const segment::ConfigBlock& config) const;

  segment::Layout& layout_;
  ExportUpdate& exports_;
  Newcomers& newcomers_;
  const SetSlowCall set_slow_call_ns_;
  std::uint64_t generation_ = 0;
  std::uint32_t sequence_ = 0;  ///< of Layout::config; zero: what was published during the start is looked at
  std::unique_ptr<ExportUpdate::List> pending_;  ///< with the reactor
};

}  // namespace sluice::process
