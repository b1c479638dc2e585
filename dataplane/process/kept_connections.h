// SPDX-License-Identifier: Apache-2.0
//
// Keeps the kernel's connections of the verbs driver when the control plane ends: holds its channel open
// (segment/kept_channel.h), and from then on probes their peers. The main thread.
#pragma once

#include <cstdint>
#include <vector>

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
  /// Both outlive it.
  KeptConnections(segment::Layout& layout, PeerProbe& probe) : layout_(layout), probe_(probe) {}
  ~KeptConnections();
  KeptConnections(const KeptConnections&) = delete;
  KeptConnections& operator=(const KeptConnections&) = delete;

  /// Takes over a channel that the control plane has published; closes those that no connection needs.
  /// `now_ns` is monotonic. Bounded; makes system calls.
  void poll(std::uint64_t now_ns);

 private:
  struct Channel {
    std::uint32_t token = 0;
    std::uint32_t owner_pid = 0;
    int descriptor = -1;
  };

  void take_newest();
  bool is_orphan(const Channel& channel) const;
  bool in_use(const Channel& channel) const;
  void probe_peers(const Channel& channel);

  segment::Layout& layout_;
  PeerProbe& probe_;
  std::uint64_t seen_ = 0;
  std::uint64_t probed_ns_ = 0;
  std::vector<Channel> channels_;
};

}  // namespace sluice::process
