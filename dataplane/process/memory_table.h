// SPDX-License-Identifier: Apache-2.0
//
// What the data plane reserves, line by line, for `sluicectl memory`. Setup.
#pragma once

#include "dataplane/segment/config_block.h"
#include "dataplane/segment/tables.h"

namespace sluice::process {

/// Sums over all reactors, in bytes. Lines that do not apply are zero.
segment::MemoryTable memory_table(const segment::ConfigBlock& config);

}  // namespace sluice::process
