// SPDX-License-Identifier: Apache-2.0
//
// Where a debugger begins: deploy/gdb/sluice-gdb.py reaches every reactor, connection, slot and queue pair
// from here, in a live process and in a core. No code reads it.
#pragma once

namespace sluice::process {

class DataPlane;

/// The data plane that run() runs; else null. Written by the main thread. Volatile, so that no compiler drops
/// stores to what nobody reads.
extern DataPlane* volatile debug_anchor;

}  // namespace sluice::process
