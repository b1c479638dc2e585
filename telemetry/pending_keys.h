// SPDX-License-Identifier: Apache-2.0
//
// Number of configuration keys whose values are not applied yet, by the planes that must be restarted to
// apply them. Written by the control plane's loop, read by any thread.
#pragma once

#include <atomic>
#include <cstdint>

namespace sluice::telemetry {

struct PendingKeys {
  std::atomic<std::uint64_t> control{0};
  std::atomic<std::uint64_t> both{0};
};

}  // namespace sluice::telemetry
