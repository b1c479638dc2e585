// SPDX-License-Identifier: Apache-2.0
//
// Standard output of a program. A full disk or a failing device is an error, like any other failed write.
#pragma once

namespace sluice::cli {

/// Flushes standard output. Returns false if a write has failed since the program was started; a command that
/// prints repeatedly must end then. Call from one thread.
bool flush_output() noexcept;

/// Returns the exit status of a program that would exit with `status`. Returns `failed`, with a line on
/// standard error, if standard output could not be written.
int finish_output(int status, int failed) noexcept;

}  // namespace sluice::cli
