// SPDX-License-Identifier: Apache-2.0
//
// Service state notifications to systemd (sd_notify): ready, watchdog keep-alive, stopping. They have no
// effect outside a systemd unit. Called by the main thread of either plane only; failures are ignored.
#pragma once

namespace sluice::notify {

void ready();
/// Resets the unit's watchdog, at most every 500 ms. Called in every loop iteration of a healthy plane.
void alive();
void stopping();

}  // namespace sluice::notify
