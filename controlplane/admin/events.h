// SPDX-License-Identifier: Apache-2.0
//
// The journal of events for administrators. The control plane's thread.
#pragma once

#include "controlplane/admin/registry.h"
#include "controlplane/events/journal.h"

namespace sluice::admin {

/// Maximum number of events in one answer, which bounds the work per request. The reader requests the next
/// events with another call.
inline constexpr std::size_t kEventsPerAnswer = 256;

/// Adds events_read. `journal` outlives the registry.
void add_events(Registry& registry, events::Journal& journal);

}  // namespace sluice::admin
