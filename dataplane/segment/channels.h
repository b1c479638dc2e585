// SPDX-License-Identifier: Apache-2.0
//
// File descriptors that the control plane passes to the data plane (SCM_RIGHTS), in datagrams over a UNIX
// socket next to the segment: the write end of the pipe of a packet capture, and the kernel's event channel
// of the verbs driver. Neither side blocks.
//
// The kernel reports the sender of a datagram. Datagrams of users other than root, the data plane's user and
// the control plane's user are dropped. Used by one thread.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "dataplane/base/file_descriptor.h"
#include "dataplane/base/net_address.h"
#include "dataplane/base/setup_error.h"

namespace sluice::segment {

/// Sends `bytes`, with `descriptor` unless that is negative; the receiver gets its own duplicate. Does not
/// block. Returns zero or an errno.
int send_datagram(const std::string& path, std::span<const std::byte> bytes, int descriptor);

/// Receiving end, in the data plane.
class DatagramInbox {
 public:
  /// Creates the socket with this mode and replaces a stale one: a segment has only one data plane. Throws
  /// SetupError.
  DatagramInbox(std::string path, mode_t mode, uid_t control_plane_user);
  ~DatagramInbox();
  DatagramInbox(const DatagramInbox&) = delete;
  DatagramInbox& operator=(const DatagramInbox&) = delete;

  /// Returns the descriptor for poll(), which is readable when a datagram has arrived.
  int descriptor() const { return socket_.get(); }

  enum class Got { Nothing, Dropped, Datagram };
  /// Receives the next datagram, which must have the size of `bytes`, and the first descriptor that came with
  /// it, if the sender passed one. Does not block.
  Got receive(std::span<std::byte> bytes, FileDescriptor& descriptor);

 private:
  bool may_send(uid_t user) const;

  const std::string path_;
  const uid_t control_plane_user_;
  FileDescriptor socket_;
};

inline constexpr std::uint32_t kCaptureMagic = 0x534c4331;  // "SLC1"

enum class CaptureAction : std::uint32_t { Start = 1, Stop = 2 };

/// Request for a packet capture; the datagram carries the write end of a pipe. The result is in
/// Layout::capture_status and in the pipe. Its layout is identical in all planes of one layout version.
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

inline constexpr std::uint32_t kKeptChannelMagic = 0x534c4b31;  // "SLK1"

/// Datagram that carries the descriptor of an rdma_cm event channel. The kernel disconnects the connections
/// of the verbs driver when the last descriptor of their channel is closed, so the control plane passes a
/// duplicate to the data plane, which holds it when the control plane ends (cm/channel_offer.h,
/// process/control_plane_monitor.h).
///
/// A channel is identified by the epoch of the control plane that opened it: each has one channel, and no
/// epoch is reused while a data plane runs. Layout::kept_epoch shows which channel has arrived; the offer is
/// repeated until then.
struct KeptChannel {
  std::uint32_t magic = kKeptChannelMagic;
  std::uint32_t epoch = 0;  ///< never zero
};

/// Channel that a connection belongs to; stored in the connection's cm_state.
struct KeptConnection {
  std::uint32_t epoch = 0;  ///< never zero
};

/// Returns the path of the data plane's socket for a segment.
std::string kept_socket_of(const std::string& segment);

}  // namespace sluice::segment
