// SPDX-License-Identifier: Apache-2.0
//
// Datagrams with a file descriptor (SCM_RIGHTS) from the control plane to the data plane, over a UNIX socket
// next to the segment. Neither side blocks.
//
// The kernel reports the sender of a datagram. Datagrams of users other than root, the data plane's user and
// the control plane's user are dropped. Used by one thread.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <optional>
#include <span>
#include <string>

#include "dataplane/base/file_descriptor.h"
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

}  // namespace sluice::segment
