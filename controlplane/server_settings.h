// SPDX-License-Identifier: Apache-2.0
//
// What MOUNT and the lock service are told: which exports there are, and where locks go.
#pragma once

#include <memory>
#include <optional>

#include "controlplane/config/config.h"
#include "controlplane/locks/lock_service.h"
#include "controlplane/mount/exports.h"
#include "controlplane/mount/registration.h"
#include "controlplane/mount/statistics.h"
#include "dataplane/segment/segment.h"

namespace sluice::controlplane {

/// NFSv3 clients ask here wherever their calls go: to exports in memory, to an upstream, to the server of [reverse].
/// MOUNT's thread may have the result; `layout` and `statistics` outlive it.
std::unique_ptr<mount::Exports> mount_exports(const segment::ConfigBlock& block,
                                              const segment::Layout& layout,
                                              mount::MountStatistics& statistics);

/// Returns the listener of the reverse gateway, which is registered with rpcbind while the data plane runs. Returns none
/// without [reverse]. `layout` outlives the result.
std::optional<mount::NfsListener> nfs_listener(const segment::ConfigBlock& block,
                                               const segment::Layout& layout);

/// The upstream is that of NFSv3: the configuration has one. `layout` outlives what they are for.
locks::LockSettings lock_settings(const config::Config& config, const segment::Layout& layout);

}  // namespace sluice::controlplane
