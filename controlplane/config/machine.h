// SPDX-License-Identifier: Apache-2.0
//
// What of a configuration can only be judged on the machine that it is for: processors, groups and paths. System calls, which may
// wait for a disk or a directory service. Setup; one thread.
#pragma once

#include <cstdint>

#include "controlplane/config/config.h"

namespace sluice::config {

/// Throws ConfigError if it names a processor that is not one of the first `processors`.
void check_processors(const Config& config, std::uint32_t processors);
/// Throws ConfigError, with a sentence for each defect.
void check_machine(const Config& config);

}  // namespace sluice::config
