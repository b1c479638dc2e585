// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace sluice::bench {

/// Requests the root handle of an export from a MOUNT version 3 server over TCP. Throws ClientError.
std::vector<std::byte> mount_root(const std::string& host, std::uint16_t port, const std::string& path);

}  // namespace sluice::bench
