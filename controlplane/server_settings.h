// SPDX-License-Identifier: Apache-2.0
//
// Settings of the MOUNT and lock services, derived from the configuration: the exports, and the upstream for
// locks.
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

/// Returns the exports for MOUNT. NFSv3 clients use this MOUNT service for exports in memory, an upstream,
/// and the server of [reverse] alike. The result may be moved to MOUNT's thread. `layout` and `statistics`
/// outlive it.
std::unique_ptr<mount::Exports> mount_exports(const segment::ConfigBlock& block,
                                              const segment::Layout& layout,
                                              mount::MountStatistics& statistics);

/// Returns the listener of the reverse gateway, which is registered with rpcbind while the data plane runs.
/// Returns none without [reverse]. `layout` outlives the result.
std::optional<mount::NfsListener> nfs_listener(const segment::ConfigBlock& block,
                                               const segment::Layout& layout);

/// Returns the settings for locks at the upstream of NFSv3, which the configuration must have. `layout`
/// outlives the lock service.
locks::LockSettings lock_settings(const config::Config& config, const segment::Layout& layout);

}  // namespace sluice::controlplane
