// SPDX-License-Identifier: Apache-2.0
#include "dataplane/segment/capture_channel.h"

#include <cstring>
#include <utility>

#include "dataplane/segment/part_file.h"

namespace sluice::segment {
namespace {

/// Any process may send; DatagramInbox looks at its credentials.
constexpr mode_t kMode = 0666;

}  // namespace

std::string capture_socket_of(const std::string& segment) {
  return base_path_of(segment) + ".capture";
}

void send_capture_request(const std::string& path, const CaptureRequest& request, int descriptor) {
  const int error = send_datagram(path, std::as_bytes(std::span(&request, 1)), descriptor);
  if (error == 0) return;
  throw SetupError("The data plane takes no request for a capture at " + path + " (" + std::strerror(error) +
                   "): is it running ('sluicectl status')?");
}

CaptureInbox::CaptureInbox(std::string path, uid_t control_plane_user)
    : inbox_(std::move(path), kMode, control_plane_user) {}

std::optional<CaptureInbox::Received> CaptureInbox::receive() {
  Received received;
  const auto got =
      inbox_.receive(std::as_writable_bytes(std::span(&received.request, 1)), received.descriptor);
  if (got != DatagramInbox::Got::Datagram || received.request.magic != kCaptureMagic) return std::nullopt;
  return received;
}

}  // namespace sluice::segment
