// SPDX-License-Identifier: Apache-2.0
//
// Redirection of DPDK's log to our own, so that a reactor that calls into DPDK never waits for standard
// error.
#pragma once

namespace sluice::process {

/// Redirects DPDK's log. Called once, before rte_eal_init().
void take_dpdk_log();

}  // namespace sluice::process
