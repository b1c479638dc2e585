// SPDX-License-Identifier: Apache-2.0
//
// Files with pre-shared keys of hosts. Used at setup and reload; any thread.
#pragma once

#include <string>

#include "controlplane/properties/key_schedule.h"

namespace sluice::properties {

inline constexpr std::size_t kMinKeyBytes = 16;
inline constexpr std::size_t kMaxKeyBytes = 1024;

/// Reads a key, which is the content of the file without the line end. Throws std::runtime_error with a
/// sentence, also if users other than the owner may read the file.
PskKey read_key_file(const std::string& path);

}  // namespace sluice::properties
