// SPDX-License-Identifier: Apache-2.0
//
// Filter of a packet capture. Pure functions and plain values; any thread; message path.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "dataplane/base/net_address.h"

namespace sluice::rdma::softroce {

enum class Way : std::uint8_t { In, Out };

/// A filter. Frames must match all criteria that are set.
struct CaptureFilter {
  std::optional<PeerAddress> peer;  ///< IP packets and ARP from and to this address
  std::uint32_t queue_pair = 0;     ///< our queue pair of RoCEv2 packets; zero matches all frames
};

/// Flow of one of our queue pairs. An outgoing packet contains only the peer's queue pair number.
struct Flow {
  std::uint32_t queue_pair = 0;  ///< number of our queue pair; zero if unknown
  std::uint32_t peer_queue_pair = 0;
  PeerAddress peer;
};

/// Reports whether a frame matches the filter. `head` is the start of the frame with all headers up to the
/// base transport header; a frame with truncated headers matches only an empty filter. `flow` belongs to the
/// filter's queue pair.
bool matches(const CaptureFilter& filter, const Flow& flow, Way way,
             std::span<const std::byte> head) noexcept;

}  // namespace sluice::rdma::softroce
