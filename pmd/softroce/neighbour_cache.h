// SPDX-License-Identifier: Apache-2.0
//
// Link addresses of neighbours, for all lanes of a port. Lane 0 learns, since it handles all frames of host
// protocols; every lane may look. The oldest entry is replaced; one that is not confirmed is forgotten. Times in ns.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "dataplane/base/seqlock.h"
#include "pmd/softroce/frame.h"

namespace sluice::rdma::softroce {

inline constexpr std::size_t kMaxNeighbours = 64;
/// Age from which a neighbour is asked again when it is used (RFC 4861, ReachableTime).
inline constexpr std::uint64_t kNeighbourFreshNs = 30'000'000'000;
/// Age from which it is not used any more.
inline constexpr std::uint64_t kNeighbourForgottenNs = 120'000'000'000;

class NeighbourCache {
 public:
  struct Found {
    MacAddress link{};
    bool stale = false;
  };

  /// Any lane. nullopt: not known, or forgotten.
  std::optional<Found> find(const PeerAddress& address, std::uint64_t now_ns) const noexcept {
    for (const auto& entry : entries_) {
      Neighbour known;
      if (!entry.read(known) || !known.known || known.address != address) continue;
      const std::uint64_t age = now_ns > known.seen_ns ? now_ns - known.seen_ns : 0;
      if (age > kNeighbourForgottenNs) return std::nullopt;
      return Found{known.link, age > kNeighbourFreshNs};
    }
    return std::nullopt;
  }

  // Lane 0.
  void learn(const PeerAddress& address, const MacAddress& link, std::uint64_t now_ns) noexcept {
    if (!follow(address, link, now_ns))
      entries_[next_++ % kMaxNeighbours].write({true, address, link, now_ns});
  }
  /// Of a neighbour that is known; an announcement makes nobody known. False: it is not.
  bool follow(const PeerAddress& address, const MacAddress& link, std::uint64_t now_ns) noexcept {
    for (auto& entry : entries_) {
      Neighbour known;
      if (!entry.read(known) || !known.known || known.address != address) continue;
      entry.write({true, address, link, now_ns});
      return true;
    }
    return false;
  }

 private:
  struct Neighbour {
    bool known = false;
    PeerAddress address;
    MacAddress link{};
    std::uint64_t seen_ns = 0;
  };

  std::array<SeqLock<Neighbour>, kMaxNeighbours> entries_{};
  std::size_t next_ = 0;
};

}  // namespace sluice::rdma::softroce
