// SPDX-License-Identifier: Apache-2.0
//
// Methods that sluicectl calls. Connects each view with the part of the control plane that it shows.
#pragma once

#include "controlplane/admin/registry.h"

namespace sluice::controlplane {

class ControlPlane;

/// Adds all methods. `plane` outlives the registry.
void add_admin_methods(admin::Registry& registry, ControlPlane& plane);

}  // namespace sluice::controlplane
