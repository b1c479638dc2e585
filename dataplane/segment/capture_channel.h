// SPDX-License-Identifier: Apache-2.0
//
// Requests of the control plane for a packet capture: a datagram to the data plane that carries the write end
// of a pipe (segment/datagram_socket.h). The result is in Layout::capture_status and in the pipe.
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

/// Capture request. Its layout is identical in all planes of one layout version.
struct CaptureRequest {
  std::uint32_t magic = kCaptureMagic;
  CaptureAction action = CaptureAction::Start;
  std::uint64_t id = 0;           ///< capture number; in Stop, zero matches any capture
  std::uint64_t max_packets = 0;  ///< zero: no limit
  std::uint64_t max_bytes = 0;    ///< limit on bytes written; zero: no limit
  std::uint32_t seconds = 0;      ///< zero: no limit
  std::uint32_t snap_bytes = 0;   ///< bytes captured of each packet
  PeerAddress peer{};             ///< all zero: packets of all peers
  std::uint32_t queue_pair = 0;   ///< zero: packets of all queue pairs
};
static_assert(sizeof(CaptureRequest) == 64);

/// Returns the socket's path for a segment.
std::string capture_socket_of(const std::string& segment);

/// Sends a request, with `descriptor` unless that is negative. Does not block. Throws SetupError if no data
/// plane receives the request.
void send_capture_request(const std::string& path, const CaptureRequest& request, int descriptor);

/// Receiving end, in the data plane. Used by one thread.
class CaptureInbox {
 public:
  struct Received {
    CaptureRequest request;
    FileDescriptor descriptor;  ///< empty if the sender passed none
  };

  /// Throws SetupError.
  CaptureInbox(std::string path, uid_t control_plane_user);

  /// Returns the descriptor for poll(), which is readable when a datagram has arrived.
  int descriptor() const { return inbox_.descriptor(); }
  /// Returns nullopt if no datagram is left or the next one is not a request. Does not block.
  std::optional<Received> receive();

 private:
  DatagramInbox inbox_;
};

}  // namespace sluice::segment
