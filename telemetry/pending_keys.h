// SPDX-License-Identifier: Apache-2.0
//
// How many keys of the configuration's files have values that are not in force, by what has to be restarted for them. The
// control plane's loop writes, any thread reads.
#pragma once

#include <atomic>
#include <cstdint>

namespace sluice::telemetry {

struct PendingKeys {
  std::atomic<std::uint64_t> control{0};
  std::atomic<std::uint64_t> both{0};
};

}  // namespace sluice::telemetry
