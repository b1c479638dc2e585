// SPDX-License-Identifier: Apache-2.0
#include "controlplane/admin/capture.h"

#include <arpa/inet.h>

#include <algorithm>
#include <cstdint>

#include "controlplane/admin/declarations/declarations.h"
#include "dataplane/base/net_address.h"
#include "dataplane/segment/capture_channel.h"
#include "dataplane/segment/checked.h"

namespace sluice::admin {
namespace {

constexpr const char* kStates[] = {"none", "running", "done", "failed"};

PeerAddress address_of(const std::string& text) {
  PeerAddress address = PeerAddress::from_ipv4(0, 0, 0, 0);
  if (::inet_pton(AF_INET, text.c_str(), address.bytes.data() + 12) == 1 ||
      ::inet_pton(AF_INET6, text.c_str(), address.bytes.data()) == 1)
    return address;
  throw MethodError("'" + text + "' is no IP address: 'sluicectl connections' shows those of peers.");
}

Json start_capture(const segment::Layout& layout, const std::string& socket, const Json& parameters,
                   const FileDescriptor& pipe) {
  if (!pipe)
    throw MethodError("capture_start takes the writing end of a pipe, passed with the request (SCM_RIGHTS).");
  const auto status = segment::checked(layout.capture_status);
  if (status && status->state == segment::CaptureState::Running &&
      segment::alive(layout.data_plane, segment::monotonic_ns()))
    throw MethodError("A capture runs already: 'sluicectl capture --stop' ends it.");
  segment::CaptureRequest request;
  request.id = segment::monotonic_ns();  // no other has it, nor had before this process
  request.seconds = parameters.at("seconds").get<std::uint32_t>();
  request.snap_bytes = parameters.at("snap").get<std::uint32_t>();
  request.max_packets = parameters.at("packets").get<std::uint64_t>();
  request.max_bytes = parameters.at("bytes").get<std::uint64_t>();
  request.queue_pair = parameters.at("queue_pair").get<std::uint32_t>();
  if (const auto peer = parameters.at("peer").get<std::string>(); !peer.empty())
    request.peer = address_of(peer);
  segment::send_capture_request(socket, request, pipe.get());
  return {{"id", request.id}};
}

Json stop_capture(const std::string& socket, const Json& parameters) {
  segment::CaptureRequest request;
  request.action = segment::CaptureAction::Stop;
  request.id = parameters.at("id").get<std::uint64_t>();
  segment::send_capture_request(socket, request, -1);
  return {{"id", request.id}};
}

Json capture_status(const segment::Layout& layout) {
  const auto status = segment::checked(layout.capture_status);
  if (!status) return {{"state", "none"}};
  Json result = {{"id", status->id},
                 {"state", kStates[static_cast<std::size_t>(status->state)]},
                 {"packets", status->packets},
                 {"bytes", status->bytes},
                 {"dropped", status->dropped}};
  if (status->state == segment::CaptureState::Done) result["end"] = status->end;
  if (status->state == segment::CaptureState::Failed) result["problem"] = status->problem;
  return result;
}

}  // namespace

void add_capture(Registry& registry, const segment::Layout& layout, const std::string& socket) {
  registry.add_with_descriptor(declared("capture_start"),
                               [&layout, socket](const Json& parameters, const FileDescriptor& pipe) {
                                 return start_capture(layout, socket, parameters, pipe);
                               });
  registry.add(declared("capture_stop"),
               [socket](const Json& parameters) { return stop_capture(socket, parameters); });
  registry.add(declared("capture_status"), [&layout](const Json&) { return capture_status(layout); });
}

}  // namespace sluice::admin
