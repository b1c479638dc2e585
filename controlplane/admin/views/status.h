// SPDX-License-Identifier: Apache-2.0
//
// Views of the gateway as a whole: 'sluicectl status', 'sluicectl version', the state of a drain,
// 'sluicectl config', 'sluicectl memory' and 'sluicectl devices'. The control plane's thread.
#pragma once

#include <string>

#include "controlplane/config/changes.h"
#include "controlplane/config/config.h"
#include "controlplane/json/json.h"
#include "controlplane/policy/admission.h"
#include "dataplane/segment/segment.h"

namespace sluice::policy {
class Admission;
}

namespace sluice::admin {

/// State of the control plane that is neither in the segment nor in the configuration.
struct ControlPlaneState {
  const policy::Admission& admission;
  policy::RefusalCounts refusals{};  ///< requests refused for reasons other than admission control
  bool data_plane_alive = false;
  bool in_force = false;  ///< the data plane has applied the published configuration
  /// Changed keys that take effect after a restart of both planes, and after a restart of the control plane.
  const std::vector<std::string>& pending;
  const std::vector<std::string>& pending_control;
};

Json status(const segment::Layout& layout, const config::Config& config, const ControlPlaneState& state);
/// Returns the state of a drain.
Json drain_status(const segment::Layout& layout, const config::Config& config, bool draining);
Json version();

/// Returns the changed keys, grouped by what puts them in force: the reload or a restart.
Json describe_changes(const config::Changes& changes);
/// Checks `text`, the content of a configuration file. Returns the changes relative to `running`, or the
/// defects. `name` is the file's name in messages. `places` is the parameter of config::compare().
Json check_configuration(const std::string& text, const std::string& name, const config::Config& running,
                         const segment::UpstreamPlaces& places);

/// Returns the resident bytes of the data plane's process, its reserved bytes by purpose, the use of the
/// buffers that connections share, and the connections that hold most of them. Reads the segment and /proc.
Json memory(const segment::Layout& layout, const segment::ConfigBlock& config);

/// Returns the counters of the devices that reactors poll, and the RDMA ports of this machine. Reads the
/// segment and opens each RDMA device, which makes system calls.
Json devices(const segment::Layout& layout, const segment::ConfigBlock& block);

}  // namespace sluice::admin
