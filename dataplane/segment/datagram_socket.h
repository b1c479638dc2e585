// SPDX-License-Identifier: Apache-2.0
//
// Datagrams with a file descriptor (SCM_RIGHTS) from the control plane to the data plane, over a UNIX socket beside the
// segment. Neither side waits for the other.
//
// The kernel says who has sent a datagram: those of other users than root, the data plane's and the control plane's are
// dropped. One thread.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <optional>
#include <span>
#include <string>

#include "dataplane/base/file_descriptor.h"
#include "dataplane/base/setup_error.h"

namespace sluice::segment {

/// Sends `bytes`, with `descriptor` unless that is negative; whoever receives it has one of its own. Does not block.
/// Zero, or an errno.
int send_datagram(const std::string& path, std::span<const std::byte> bytes, int descriptor);

/// The data plane's end.
class DatagramInbox {
 public:
  /// Makes the socket with that mode, in place of one that nobody has any more: a segment has one data plane. Throws
  /// SetupError.
  DatagramInbox(std::string path, mode_t mode, uid_t control_plane_user);
  ~DatagramInbox();
  DatagramInbox(const DatagramInbox&) = delete;
  DatagramInbox& operator=(const DatagramInbox&) = delete;

  /// For poll(): readable when something has arrived.
  int descriptor() const { return socket_.get(); }

  enum class Got { Nothing, Dropped, Datagram };
  /// The next datagram, which has to fill `bytes`, and the first descriptor that came with it: none where the sender has
  /// passed none. Does not block.
  Got receive(std::span<std::byte> bytes, FileDescriptor& descriptor);

 private:
  bool may_send(uid_t user) const;

  const std::string path_;
  const uid_t control_plane_user_;
  FileDescriptor socket_;
};

}  // namespace sluice::segment
