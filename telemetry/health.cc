// SPDX-License-Identifier: Apache-2.0
#include "telemetry/health.h"

#include <unistd.h>

#include <string>

#include "dataplane/base/small_algorithms.h"

namespace sluice::telemetry {
namespace {

constexpr const char* kTooLong = " for more than 3 s";
static_assert(segment::kHeartbeatTimeoutNs == 3'000'000'000);

}  // namespace

Health liveness(const segment::Layout& layout, std::uint64_t monotonic_now_ns) {
  if (segment::alive(layout.control_plane, monotonic_now_ns)) return {true, "alive"};
  return {false, std::string("the loop of the control plane has not come round") + kTooLong};
}

Health readiness(const segment::Layout& layout, std::uint64_t monotonic_now_ns) {
  if (layout.control_plane.pid.load() != static_cast<std::uint32_t>(::getpid()))
    return {false, "this control plane does not own the segment"};
  if (Health own = liveness(layout, monotonic_now_ns); !own.good) return own;
  if (layout.data_plane.pid.load() == 0) return {false, "there is no data plane: start sluice-dataplane"};
  if (!segment::alive(layout.data_plane, monotonic_now_ns))
    return {false, std::string("the data plane's heart has not beaten") + kTooLong};
  const auto config = layout.config.read_copy();
  if (!config) return {false, "there is no configuration"};
  for (std::uint32_t i = 0; i < smaller_of(config->reactors, segment::kMaxReactors); ++i) {
    const auto info = layout.reactors[i].info.read();
    if (!info || info->state != segment::ReactorState::Running)
      return {false, "reactor " + std::to_string(i) + " does not run"};
  }
  if (layout.draining.load() != 0) return {false, "draining: new connections are refused"};
  return {true, "ready"};
}

}  // namespace sluice::telemetry
