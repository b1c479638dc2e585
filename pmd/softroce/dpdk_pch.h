// SPDX-License-Identifier: Apache-2.0
//
// Precompiled header of softroce: DPDK's Ethernet devices and packet buffers.
#ifndef SLUICE_PCH_DPDK_H  // #pragma once in a main file is a warning
#define SLUICE_PCH_DPDK_H

#include <rte_ethdev.h>
#include <rte_mbuf.h>

#include "dataplane/base/standard_pch.h"

#endif
