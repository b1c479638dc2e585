// SPDX-License-Identifier: Apache-2.0
//
// What the admin socket answers.
#pragma once

#include "controlplane/admin/server.h"

namespace sluice::controlplane {
class ControlPlane;
}

namespace sluice::admin {

/// `plane` has to outlive the server.
void add_methods(Server& server, controlplane::ControlPlane& plane);

}  // namespace sluice::admin
