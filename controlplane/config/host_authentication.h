// SPDX-License-Identifier: Apache-2.0
//
// The [host_authentication] table of the configuration, with its [[host_authentication.host]] entries.
// Setup and reload; one thread.
#pragma once

#include "controlplane/config/checker.h"
#include "controlplane/json/json.h"

namespace sluice::config {

/// `hosts` of an [[export]]: which hosts are served. Returns how many of `out` it has filled.
std::uint32_t read_export_hosts(Checker& check, const toml::table& table, std::span<HostName> out);
/// Whether the hosts that the exports of `block`, read from `root`, name can authenticate themselves with `known`.
void check_export_hosts(Checker& check, const toml::table& root, const segment::ConfigBlock& block,
                        const Config& known);
/// Call after the client classes and the exports have been read. Defects go to `check`.
void read_host_authentication(Checker& check, const toml::table& root, Config& config);
Json describe_host_authentication(const Config& config);

}  // namespace sluice::config
