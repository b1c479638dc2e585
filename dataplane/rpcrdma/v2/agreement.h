// SPDX-License-Identifier: Apache-2.0
//
// Limits that result from the properties of both ends of a version 2 connection (draft, section 5; D2-20 to
// D2-27). Pure functions; any thread of either plane.
#pragma once

#include <cstdint>

#include "dataplane/base/small_algorithms.h"
#include "dataplane/rpcrdma/wire/v2.h"

namespace sluice::rpcrdma::v2 {

/// Limits in force at one end. The defaults apply until the peer has announced its properties.
struct Agreement {
  std::uint32_t send_bytes = kDefaultSendBytes;  ///< largest Send, in bytes
  std::uint32_t max_segment_bytes = kDefaultSegmentBytes;
  std::uint32_t max_segments = kDefaultSegmentCount;  ///< in one header that we send
  ReverseSupport reverse = ReverseSupport::Inline;    ///< the peer's support for our calls
};

/// Minimum Send size, in bytes. A peer cannot force smaller ones (V2-065).
inline constexpr std::uint32_t kLeastThreshold = 1024;
inline constexpr std::uint32_t kLeastSegmentBytes = 4096;

/// Clamps values that are out of range and never refuses them. `clamped` counts the clamped values.
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
