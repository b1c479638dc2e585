// SPDX-License-Identifier: Apache-2.0
//
// The journal of events for administrators. The control plane's thread.
#pragma once

#include "controlplane/admin/registry.h"
#include "controlplane/events/journal.h"

namespace sluice::admin {

/// Events of one answer, so that what a reader costs has a bound; it asks again for the next ones.
inline constexpr std::size_t kEventsPerAnswer = 256;

/// events_read. `journal` outlives the registry.
void add_events(Registry& registry, events::Journal& journal);

}  // namespace sluice::admin
