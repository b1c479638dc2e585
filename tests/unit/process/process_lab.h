// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "dataplane/process/core.h"
#include "tests/unit/reactor/memory_segment.h"

namespace sluice::process {

using reactor::MemorySegment;

/// Returns a name for files under /dev/shm that no other test uses.
std::string unique_name(const std::string& purpose);

/// Returns the configuration of a small data plane with the loopback driver. Its file is removed with its
/// devices.
segment::ConfigBlock loopback_config();

/// Returns an upstream for NFS 4 at the gateway's own port.
segment::UpstreamConfig rdma_upstream(const char* name, std::uint32_t connections);

/// Time in nanoseconds, which tests set.
inline std::uint64_t test_now_ns = 1'000'000'000;
inline std::uint64_t test_clock() noexcept {
  return test_now_ns;
}

}  // namespace sluice::process
