// SPDX-License-Identifier: Apache-2.0
//
// What a plane tells systemd, where it runs under it: ready, alive (the unit's watchdog), stopping.
#pragma once

namespace sluice::notify {

void ready();
/// To be called as long as the plane does its work; tells systemd now and then.
void alive();
void stopping();

}  // namespace sluice::notify
