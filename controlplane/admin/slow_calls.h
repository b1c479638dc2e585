// SPDX-License-Identifier: Apache-2.0
//
// Method "slow_calls", which lists calls that took longer than [observability] slow_call_ms. Clients read on
// by the numbers of the calls. The control plane's thread.
#pragma once

#include "controlplane/admin/registry.h"
#include "controlplane/config/config.h"
#include "dataplane/segment/segment.h"

namespace sluice::admin {

/// Maximum number of calls per reactor in one answer. The reader requests the rest with "next".
inline constexpr std::uint64_t kSlowCallsPerAnswer = 32;

/// Adds the method. `layout` and `config` outlive the registry.
void add_slow_calls(Registry& registry, const segment::Layout& layout, const config::Config& config);

}  // namespace sluice::admin
