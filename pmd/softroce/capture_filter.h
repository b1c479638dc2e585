// SPDX-License-Identifier: Apache-2.0
//
// Which frames a packet capture keeps. Pure functions and plain values; any thread; message path.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "dataplane/base/net_address.h"

namespace sluice::rdma::softroce {

enum class Way : std::uint8_t { In, Out };

/// Frames have to match all that is set.
struct CaptureFilter {
  std::optional<PeerAddress> peer;  ///< IP packets and ARP from and to this address
  std::uint32_t queue_pair =
      0;  ///< RoCEv2 packets of this queue pair of ours; zero: of all, and other frames
};

/// Where a queue pair of ours sends: an outgoing packet names the peer's only.
struct Flow {
  std::uint32_t queue_pair = 0;  ///< ours; zero: none is known
  std::uint32_t peer_queue_pair = 0;
  PeerAddress peer;
};

/// `head` is the beginning of a frame, with all headers up to the base transport header; a frame whose headers are cut
/// off matches an empty filter only. `flow` is that of the filter's queue pair.
bool matches(const CaptureFilter& filter, const Flow& flow, Way way,
             std::span<const std::byte> head) noexcept;

}  // namespace sluice::rdma::softroce
