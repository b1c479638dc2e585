// SPDX-License-Identifier: Apache-2.0
//
// Memory that the data plane reserves, as a table for `sluicectl memory`. Used at setup.
#pragma once

#include "dataplane/segment/config_block.h"
#include "dataplane/segment/tables.h"

namespace sluice::process {

/// Returns sums over all reactors, in bytes. Lines that do not apply are zero.
segment::MemoryTable memory_table(const segment::ConfigBlock& config);

}  // namespace sluice::process
