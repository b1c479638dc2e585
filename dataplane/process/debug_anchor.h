// SPDX-License-Identifier: Apache-2.0
//
// Entry point for debuggers: deploy/gdb/sluice-gdb.py reaches every reactor, connection, slot and queue pair
// from here, in a live process and in a core dump. No code reads it.
#pragma once

namespace sluice::process {

class DataPlane;

/// Data plane whose run() is active; otherwise null. Written by the main thread. Volatile, so that the
/// compiler does not drop stores that no code reads.
extern DataPlane* volatile debug_anchor;

}  // namespace sluice::process
