// SPDX-License-Identifier: Apache-2.0
//
// Keeps the kernel's connections of the verbs driver when the control plane ends: holds the channel that it has passed
// (segment/kept_channel.h), and from then on probes their peers. The main thread.
#pragma once

#include <cstdint>
#include <vector>

#include "dataplane/base/file_descriptor.h"
#include "dataplane/segment/datagram_socket.h"
#include "dataplane/segment/kept_channel.h"
#include "dataplane/segment/segment.h"

namespace sluice::process {

/// Finds out whether the peer of a queue pair is there. One whose peer is not goes to Error.
class PeerProbe {
 public:
  virtual void probe(std::uint32_t reactor, std::uint32_t queue_pair) = 0;

 protected:
  ~PeerProbe() = default;
};

class KeptConnections {
 public:
  /// Makes the socket, and says that nothing is held yet. The control plane's part is mapped. Both outlive it. Throws
  /// SetupError.
  KeptConnections(segment::Segment& segment, PeerProbe& probe);

  /// Takes channels that the control plane has passed; closes those that no connection needs. `now_ns` is monotonic.
  /// Bounded; makes system calls.
  void poll(std::uint64_t now_ns);

 private:
  struct Channel {
    std::uint32_t epoch = 0;  ///< of the control plane that has opened it
    FileDescriptor descriptor;
  };

  void take_offered();
  bool holds(std::uint32_t epoch) const;
  bool is_orphan(const Channel& channel) const;
  bool in_use(const Channel& channel) const;
  void probe_peers(const Channel& channel);

  segment::Segment& segment_;
  segment::Layout& layout_;
  PeerProbe& probe_;
  segment::DatagramInbox inbox_;
  std::uint64_t probed_ns_ = 0;
  std::vector<Channel> channels_;
};

}  // namespace sluice::process
