// SPDX-License-Identifier: Apache-2.0
//
// What the admin socket answers, read from the shared segment.
#pragma once

#include "controlplane/admin/server.h"
#include "controlplane/cm/connection_keeper.h"
#include "controlplane/config/config.h"
#include "dataplane/segment/segment.h"

namespace sluice::admin {

void add_methods(Server& server, segment::Layout& layout, const config::Config& config,
                 const cm::ConnectionKeeper& keeper);

}  // namespace sluice::admin
