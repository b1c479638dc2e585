// SPDX-License-Identifier: Apache-2.0
//
// The [[export]] tables of a configuration. Setup and reload; one thread.
#pragma once

#include <cstdint>
#include <string>

#include "controlplane/config/config.h"
#include "controlplane/json/json.h"
#include "dataplane/segment/config_block.h"

namespace sluice::config {

/// Of one export.
inline constexpr std::uint32_t kMaxQuotaMib = 1u << 20;

/// Whether clients would take one path for a folder of the other, which it is not: each has files of its own.
bool overlap(const std::string& one, const std::string& other);
std::string overlap_defect(const std::string& one, const std::string& other);
/// Throws ConfigError if an [[export]] of the file says nothing about who may have it, as one that was cut does not.
void check_clients_of_exports(const Config& config);
/// Its keys, as the file has them.
Json describe_export(const segment::ExportConfig& entry);

}  // namespace sluice::config
