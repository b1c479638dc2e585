// SPDX-License-Identifier: Apache-2.0
//
// 'sluicectl status', 'sluicectl version' and the state of a drain. The control plane's thread.
#pragma once

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
/// Returns the state of a drain. "saved" is true if the state survives a restart.
Json drain_status(const segment::Layout& layout, const config::Config& config, bool draining);
Json version();

}  // namespace sluice::admin
