// SPDX-License-Identifier: Apache-2.0
//
// Names of the files and sockets of a segment. Any thread.
#pragma once

#include <string>

namespace sluice::segment {

/// Returns the common prefix of the paths of a segment's files: below /dev/shm for a name; a path is used
/// unchanged.
std::string base_path_of(const std::string& segment);

}  // namespace sluice::segment
