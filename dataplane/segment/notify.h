// SPDX-License-Identifier: Apache-2.0
//
// Service state notifications to systemd (sd_notify): ready, watchdog keep-alive, stopping. No effect outside
// a systemd unit. Main thread of either plane only; failures are ignored.
#pragma once

namespace sluice::notify {

void ready();
/// Called on every pass of a healthy plane; resets the unit's watchdog, at most every 500 ms.
void alive();
void stopping();

}  // namespace sluice::notify
