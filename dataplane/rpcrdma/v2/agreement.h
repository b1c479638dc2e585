// SPDX-License-Identifier: Apache-2.0
//
// What follows from the properties of both ends of a version 2 connection (draft, section 5; D2-20 to D2-27).
// Pure; any thread of any plane.
#pragma once

#include <cstdint>

#include "dataplane/base/small_algorithms.h"
#include "dataplane/rpcrdma/wire/v2.h"

namespace sluice::rpcrdma::v2 {

/// As it is in force at one end; the defaults hold until the peer has told its properties.
struct Agreement {
  std::uint32_t send_bytes = kDefaultSendBytes;  ///< largest Send
  std::uint32_t max_segment_bytes = kDefaultSegmentBytes;
  std::uint32_t max_segments = kDefaultSegmentCount;  ///< in one header of ours
  ReverseSupport reverse = ReverseSupport::Inline;    ///< of the peer, for calls of ours
};

/// No peer makes us send in smaller pieces, whatever it says (V2-065).
inline constexpr std::uint32_t kLeastThreshold = 1024;
inline constexpr std::uint32_t kLeastSegmentBytes = 4096;

/// Values out of range are clamped, never refused. `clamped` counts them.
inline Agreement agree(const Parameters& own, const Parameters& peer,
                       std::uint64_t* clamped = nullptr) noexcept {
  const auto clamp = [clamped](std::uint32_t value, std::uint32_t least, std::uint32_t most) {
    if (clamped != nullptr && value < least) ++*clamped;
    return bounded(value, least, larger_of(least, most));
  };
  constexpr std::uint32_t kNoLimit = ~std::uint32_t{0};
  return {.send_bytes = clamp(peer.receive_buffer_bytes, kLeastThreshold, own.max_send_bytes),
          .max_segment_bytes = clamp(peer.max_segment_bytes, kLeastSegmentBytes, kNoLimit),
          .max_segments = clamp(peer.max_segments, 1, kNoLimit),
          .reverse = peer.reverse};
}

}  // namespace sluice::rpcrdma::v2
