// SPDX-License-Identifier: Apache-2.0
//
// Names of the files and sockets of a segment. Any thread.
#pragma once

#include <string>

namespace sluice::segment {

/// Where the files of a segment are: a name is one of files in /dev/shm, a path is one of others.
std::string base_path_of(const std::string& segment);

}  // namespace sluice::segment
