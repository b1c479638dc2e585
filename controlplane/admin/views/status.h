// SPDX-License-Identifier: Apache-2.0
//
// 'sluicectl status', 'sluicectl version' and the state of a drain. The control plane's thread.
#pragma once

#include "controlplane/config/config.h"
#include "controlplane/json/json.h"
#include "controlplane/policy/refusal.h"
#include "dataplane/segment/segment.h"

namespace sluice::policy {
class Admission;
}

namespace sluice::admin {

/// What the control plane knows beside segment and configuration.
struct ControlPlaneState {
  const policy::Admission& admission;
  policy::RefusalCounts refusals{};  ///< counts of requests that admission had not refused
  bool data_plane_alive = false;
  bool in_force = false;  ///< the data plane has applied the published configuration
  /// Keys that a start of the data plane brings into force, and those that a start of the control plane does.
  const std::vector<std::string>& pending;
  const std::vector<std::string>& pending_control;
};

Json status(const segment::Layout& layout, const config::Config& config, const ControlPlaneState& state);
/// "saved": whether the next start finds it so.
Json drain_status(const segment::Layout& layout, const config::Config& config, bool draining);
Json version();

}  // namespace sluice::admin
