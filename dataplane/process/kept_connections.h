// SPDX-License-Identifier: Apache-2.0
//
// Keeps the kernel's connections of the verbs driver when the control plane ends: holds the channel that it has passed
// (segment/kept_channel.h). From then on the kernel tells nobody that a peer has ended its connection: the engine's probe finds it
// gone. The main thread.
#pragma once

#include <cstdint>
#include <vector>

#include "dataplane/base/file_descriptor.h"
#include "dataplane/segment/datagram_socket.h"
#include "dataplane/segment/kept_channel.h"
#include "dataplane/segment/segment.h"

namespace sluice::process {

class KeptConnections {
 public:
  /// Makes the socket, and says that nothing is held yet. The control plane's part is mapped. It outlives this. Throws
  /// SetupError.
  explicit KeptConnections(segment::Segment& segment);

  /// Takes channels that the control plane has passed; closes those that no connection needs. Bounded; makes system calls.
  void poll();

 private:
  struct Channel {
    std::uint32_t epoch = 0;  ///< of the control plane that has opened it
    FileDescriptor descriptor;
  };

  void take_offered();
  bool holds(std::uint32_t epoch) const;
  bool is_orphan(const Channel& channel) const;
  bool in_use(const Channel& channel) const;

  segment::Segment& segment_;
  segment::Layout& layout_;
  segment::DatagramInbox inbox_;
  std::vector<Channel> channels_;
};

}  // namespace sluice::process
