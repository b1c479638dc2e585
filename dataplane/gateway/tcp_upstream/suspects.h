// SPDX-License-Identifier: Apache-2.0
//
// Calls that ended every connection they were sent on. Their clients repeat them; then they go on connections of
// their clients' own, where they end nobody else's. Only the owning reactor may call; no allocation.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "dataplane/base/small_algorithms.h"

namespace sluice::tcp_upstream {

/// The oldest is forgotten, and has to earn its strikes again.
inline constexpr std::size_t kMaxSuspects = 16;

class Suspects {
 public:
  bool none() const noexcept { return added_ == 0; }
  /// By the checksum of its message.
  void add(std::uint64_t call) noexcept { calls_[added_++ % kMaxSuspects] = call; }
  bool contains(std::uint64_t call) const noexcept {
    return has_element(std::span(calls_).first(smaller_of<std::uint64_t>(added_, kMaxSuspects)), call);
  }

 private:
  std::array<std::uint64_t, kMaxSuspects> calls_{};
  std::uint64_t added_ = 0;
};

}  // namespace sluice::tcp_upstream
