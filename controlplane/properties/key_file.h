// SPDX-License-Identifier: Apache-2.0
//
// Files with pre-shared keys of hosts. Setup and reload; any thread.
#pragma once

#include <string>

#include "controlplane/properties/key_schedule.h"

namespace sluice::properties {

inline constexpr std::size_t kMinKeyBytes = 16;
inline constexpr std::size_t kMaxKeyBytes = 1024;

/// The key is the content of the file without the line end. Throws std::runtime_error with a sentence, also when others
/// than the owner may read the file.
PskKey read_key_file(const std::string& path);

}  // namespace sluice::properties
