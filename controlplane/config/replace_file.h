// SPDX-License-Identifier: Apache-2.0
//
// A file that is written as a whole: who reads it, also after a power failure, finds the old text or the new one. It waits for
// the disk.
#pragma once

#include <sys/types.h>

#include <string>

namespace sluice::config {

/// By way of a new file beside it, which has the name with ".new" behind it. Throws std::runtime_error with a sentence.
void replace_file(const std::string& path, const std::string& text, mode_t mode);

}  // namespace sluice::config
