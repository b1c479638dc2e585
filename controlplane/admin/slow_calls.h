// SPDX-License-Identifier: Apache-2.0
//
// Method "slow_calls": calls that took longer than [observability] slow_call_ms, followed by their numbers. The control
// plane's thread.
#pragma once

#include "controlplane/admin/registry.h"
#include "controlplane/config/config.h"
#include "dataplane/segment/segment.h"

namespace sluice::admin {

/// Of each reactor; a reader asks for the rest with "next".
inline constexpr std::uint64_t kSlowCallsPerAnswer = 32;

/// `layout` and `config` outlive the registry.
void add_slow_calls(Registry& registry, const segment::Layout& layout, const config::Config& config);

}  // namespace sluice::admin
