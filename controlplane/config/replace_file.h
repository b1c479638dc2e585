// SPDX-License-Identifier: Apache-2.0
//
// Atomic replacement of a file. A reader finds either the old or the new text, also after a power failure.
// Blocks on the disk.
#pragma once

#include <sys/types.h>

#include <string>

namespace sluice::config {

/// Writes `text` to a new file in the same folder, with the suffix ".new", and renames it to `path`. Throws
/// std::runtime_error with a sentence.
void replace_file(const std::string& path, const std::string& text, mode_t mode);

}  // namespace sluice::config
