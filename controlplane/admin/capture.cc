// SPDX-License-Identifier: Apache-2.0
#include "controlplane/admin/capture.h"

#include <cstring>
#include <string>

namespace sluice::admin {
namespace {

using nlohmann::json;

json start_capture(segment::Layout& layout, const json& parameters) {
  const std::string path = parameters.value("file", "");
  if (path.empty() || path[0] != '/' || path.size() >= segment::kMaxPathBytes)
    throw MethodError("file has to be an absolute path of fewer than " +
                      std::to_string(segment::kMaxPathBytes) + " bytes.");
  segment::CaptureRequest request = layout.capture_request.read().value_or(segment::CaptureRequest{});
  ++request.id;
  request.run = 1;
  request.snap_bytes = parameters.value("snap", 9216u);
  request.max_packets = parameters.value("packets", std::uint64_t{0});
  std::memset(request.path, 0, sizeof request.path);
  std::memcpy(request.path, path.data(), path.size());
  layout.capture_request.write(request);
  return {{"id", request.id}};
}

json stop_capture(segment::Layout& layout) {
  auto request = layout.capture_request.read().value_or(segment::CaptureRequest{});
  ++request.id;
  request.run = 0;
  layout.capture_request.write(request);
  return {{"id", request.id}};
}

json capture_status(const segment::Layout& layout) {
  const auto status = layout.capture_status.read();
  if (!status) return {{"state", "none"}};
  static constexpr const char* kStates[] = {"none", "running", "done", "failed"};
  return {{"id", status->id},
          {"state", kStates[static_cast<std::size_t>(status->state) % 4]},
          {"packets", status->packets},
          {"dropped", status->dropped},
          {"problem", status->problem}};
}

}  // namespace

void add_capture(Registry& registry, segment::Layout& layout) {
  registry.add("capture_start", Access::Change,
               [&](const json& parameters) { return start_capture(layout, parameters); });
  registry.add("capture_stop", Access::Change, [&](const json&) { return stop_capture(layout); });
  registry.add("capture_status", Access::Read, [&](const json&) { return capture_status(layout); });
}

}  // namespace sluice::admin
