// SPDX-License-Identifier: Apache-2.0
//
// DPDK's log as part of ours, so that a reactor that calls into DPDK never waits for standard error.
#pragma once

namespace sluice::process {

/// Before rte_eal_init, once.
void take_dpdk_log();

}  // namespace sluice::process
