// SPDX-License-Identifier: Apache-2.0
//
// Standard output of a program: a full disk or a device that fails is an error, as every other failed write is.
#pragma once

namespace sluice::cli {

/// Flushes standard output. Returns false if a write has failed since the program was started; a command that prints
/// repeatedly has to end then. Call from one thread.
bool flush_output() noexcept;

/// Ends a program that would exit with `status`: returns it, or `failed` with a line on standard error if standard output
/// could not be written.
int finish_output(int status, int failed) noexcept;

}  // namespace sluice::cli
