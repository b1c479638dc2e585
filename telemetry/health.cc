// SPDX-License-Identifier: Apache-2.0
#include "telemetry/health.h"

#include <unistd.h>

#include <string>

#include "dataplane/base/small_algorithms.h"
#include "dataplane/segment/config_block.h"

namespace sluice::telemetry {
namespace {

constexpr const char* kTooLong = " for more than 3 s";
static_assert(segment::kHeartbeatTimeoutNs == 3'000'000'000);

const char* why_not_up(segment::DeviceCondition condition) {
  switch (condition) {
    case segment::DeviceCondition::Gone:
      return "the RDMA device was removed; see sluicectl events and the data plane's log";
    case segment::DeviceCondition::Broken:
      return "the RDMA device failed and is opened again; see sluicectl events and the data plane's log";
    default:
      return "the RDMA device has no link; check cable, switch and peer";
  }
}

/// Returns the reason why clients cannot reach any device of the reactors, or an empty string if one of the
/// devices is up.
const char* why_no_device(const segment::Layout& layout, std::uint32_t reactors) {
  const char* why = "";
  for (std::uint32_t i = 0; i < reactors; ++i) {
    const auto info = layout.reactors[i].info.read();
    if (!info || info->condition == segment::DeviceCondition::Up) return "";
    why = why_not_up(info->condition);
  }
  return why;
}

}  // namespace

Health liveness(const segment::Layout& layout, std::uint64_t monotonic_now_ns) {
  if (segment::alive(layout.control_plane, monotonic_now_ns)) return {true, "alive"};
  return {false, std::string("the loop of the control plane has not iterated") + kTooLong};
}

Health readiness(const segment::Layout& layout, std::uint64_t monotonic_now_ns) {
  if (layout.control_plane.pid.load() != static_cast<std::uint32_t>(::getpid()))
    return {false, "this control plane does not own the segment"};
  if (Health own = liveness(layout, monotonic_now_ns); !own.good) return own;
  if (layout.data_plane.pid.load() == 0) return {false, "no data plane runs; start sluice-dataplane"};
  if (!segment::alive(layout.data_plane, monotonic_now_ns))
    return {false, std::string("the data plane has sent no heartbeat") + kTooLong};
  const auto config = layout.config.read_copy();
  if (!config) return {false, "no configuration is published"};
  const std::uint32_t reactors = smaller_of(config->reactors, segment::kMaxReactors);
  for (std::uint32_t i = 0; i < reactors; ++i) {
    const auto info = layout.reactors[i].info.read();
    if (!info || info->state != segment::ReactorState::Running)
      return {false, "reactor " + std::to_string(i) + " does not run"};
  }
  const std::string why = segment::link_is_client(*config) ? "" : why_no_device(layout, reactors);
  if (!why.empty()) return {false, why};
  if (layout.draining.load() != 0) return {false, "draining: new connections are refused"};
  return {true, "ready"};
}

}  // namespace sluice::telemetry
