// SPDX-License-Identifier: Apache-2.0
//
// Keeps the kernel's connections of the verbs driver when the control plane ends: holds its channel open
// (segment/kept_channel.h), and from then on looks itself whether their peers are there. The main thread's.
#pragma once

#include <cstdint>
#include <vector>

#include "dataplane/segment/kept_channel.h"
#include "dataplane/segment/segment.h"

namespace sluice::reactor {

class Drivers;

class KeptConnections {
 public:
  KeptConnections(segment::Layout& layout, Drivers& drivers) : layout_(layout), drivers_(drivers) {}
  ~KeptConnections();
  KeptConnections(const KeptConnections&) = delete;
  KeptConnections& operator=(const KeptConnections&) = delete;

  /// Bounded; makes system calls.
  void turn();

 private:
  struct Channel {
    std::uint32_t token = 0;
    std::uint32_t owner_pid = 0;
    int descriptor = -1;
  };

  void keep_newest();
  bool is_orphan(const Channel& channel) const;
  bool in_use(const Channel& channel) const;
  void probe(const Channel& channel);

  segment::Layout& layout_;
  Drivers& drivers_;
  std::uint64_t seen_ = 0;
  std::uint64_t probed_ns_ = 0;
  std::vector<Channel> channels_;
};

}  // namespace sluice::reactor
