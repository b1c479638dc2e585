// SPDX-License-Identifier: Apache-2.0
//
// Values of files in sysfs and procfs. A file that does not exist, or that a container hides, has no value.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "controlplane/json/json.h"

namespace sluice::card_check {

/// Returns the first line of a file without trailing spaces, or an empty text.
std::string first_line(const std::string& path);
/// Returns the last component of the target of a symbolic link, or an empty text.
std::string target_name(const std::string& link);
/// Returns the text, or null for an empty one.
Json known(const std::string& text);

using Counters = std::map<std::string, std::uint64_t>;

/// Returns the counters of a folder such as /sys/class/infiniband/mlx5_0/ports/1/hw_counters.
Counters read_counters(const std::string& folder);
/// Returns the counters that have changed, with the difference of each.
Json differences(const Counters& before, const Counters& after);

}  // namespace sluice::card_check
