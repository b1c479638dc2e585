// SPDX-License-Identifier: Apache-2.0
//
// Preserves the kernel's connections of the verbs driver when the control plane ends, by holding the channel
// that the control plane has passed (segment/kept_channel.h). After that, the kernel's disconnect events are
// no longer read; the engine detects by its probes that a peer has closed its connection. Used by the main
// thread.
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
  /// Creates the socket and publishes that no channel is held. Requires that the control plane's part is
  /// mapped. The segment outlives this object. Throws SetupError.
  explicit KeptConnections(segment::Segment& segment);

  /// Receives channels that the control plane has passed, and closes channels that no connection needs.
  /// Bounded; makes system calls.
  void poll();

 private:
  struct Channel {
    std::uint32_t epoch = 0;  ///< epoch of the control plane that opened it
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
