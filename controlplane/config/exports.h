// SPDX-License-Identifier: Apache-2.0
//
// The [[export]] tables of a configuration. Used at setup and reload; single-threaded.
#pragma once

#include <cstdint>
#include <string>

#include "controlplane/config/config.h"
#include "dataplane/segment/config_block.h"

namespace sluice::config {

/// Maximum quota of one export, in MiB.
inline constexpr std::uint32_t kMaxQuotaMib = 1u << 20;

/// Returns true if one path lies inside the other. Clients would take it for a folder of the other export,
/// although each export has its own files.
bool overlap(const std::string& one, const std::string& other);
std::string overlap_defect(const std::string& one, const std::string& other);
/// Throws ConfigError if an [[export]] of the file does not state its clients, which can be the result of a
/// truncated file.
void check_clients_of_exports(const Config& config);

}  // namespace sluice::config
