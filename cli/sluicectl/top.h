// SPDX-License-Identifier: Apache-2.0
//
// 'sluicectl top': a view of the gateway's load that is updated periodically.
#pragma once

#include "cli/sluicectl/client.h"

namespace sluice::ctl {

/// Shows a live view until SIGINT, or for `turns` updates if not zero. `interval` is in seconds.
void top(const Client& client, double interval, unsigned turns);

}  // namespace sluice::ctl
