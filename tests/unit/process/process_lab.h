// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "dataplane/process/core.h"
#include "tests/unit/reactor/memory_segment.h"

namespace sluice::process {

using reactor::MemorySegment;

/// A name for files under /dev/shm that no other test has.
std::string unique_name(const std::string& purpose);

/// A small data plane over loopback, whose file goes with its devices.
segment::ConfigBlock loopback_config();

/// For NFS 4, at the gateway's own port.
segment::UpstreamConfig rdma_upstream(const char* name, std::uint32_t connections);

/// Nanoseconds, as the test sets them.
inline std::uint64_t test_now_ns = 1'000'000'000;
inline std::uint64_t test_clock() noexcept {
  return test_now_ns;
}

}  // namespace sluice::process
