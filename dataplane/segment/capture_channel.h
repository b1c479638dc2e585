// SPDX-License-Identifier: Apache-2.0
//
// How the control plane asks the data plane for a packet capture: a datagram with the writing end of a pipe
// (segment/datagram_socket.h). What comes of it is in Layout::capture_status, and in the pipe.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

#include "dataplane/base/file_descriptor.h"
#include "dataplane/base/net_address.h"
#include "dataplane/base/setup_error.h"
#include "dataplane/segment/datagram_socket.h"

namespace sluice::segment {

inline constexpr std::uint32_t kCaptureMagic = 0x534c4331;  // "SLC1"

enum class CaptureAction : std::uint32_t { Start = 1, Stop = 2 };

/// The same in planes of one layout version.
struct CaptureRequest {
  std::uint32_t magic = kCaptureMagic;
  CaptureAction action = CaptureAction::Start;
  std::uint64_t id = 0;           ///< of the capture; Stop: zero is any
  std::uint64_t max_packets = 0;  ///< zero: no limit
  std::uint64_t max_bytes = 0;    ///< of what is written; zero: no limit
  std::uint32_t seconds = 0;      ///< zero: no limit
  std::uint32_t snap_bytes = 0;   ///< of each packet
  PeerAddress peer{};             ///< all zero: of all peers
  std::uint32_t queue_pair = 0;   ///< zero: of all
};
static_assert(sizeof(CaptureRequest) == 64);

/// The socket's path for a segment.
std::string capture_socket_of(const std::string& segment);

/// Sends a request, with `descriptor` unless that is negative. Does not block. Throws SetupError if no data plane takes
/// it.
void send_capture_request(const std::string& path, const CaptureRequest& request, int descriptor);

/// The data plane's end. One thread.
class CaptureInbox {
 public:
  struct Received {
    CaptureRequest request;
    FileDescriptor descriptor;  ///< none where the sender has passed none
  };

  /// Throws SetupError.
  CaptureInbox(std::string path, uid_t control_plane_user);

  /// For poll(): readable when something has arrived.
  int descriptor() const { return inbox_.descriptor(); }
  /// None when there is no request left, or the next datagram is none. Does not block.
  std::optional<Received> receive();

 private:
  DatagramInbox inbox_;
};

}  // namespace sluice::segment
