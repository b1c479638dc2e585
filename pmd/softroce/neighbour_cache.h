// SPDX-License-Identifier: Apache-2.0
//
// Link addresses of neighbours, for all lanes of a port. Lane 0 writes entries, because it handles all frames
// of host protocols; every lane may read. A new entry replaces the oldest one, and an entry that is not
// confirmed expires. Times in ns.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "dataplane/base/seqlock.h"
#include "pmd/softroce/frame.h"

namespace sluice::rdma::softroce {

inline constexpr std::size_t kMaxNeighbours = 64;
/// Age from which a neighbour is resolved again when it is used (RFC 4861, ReachableTime).
inline constexpr std::uint64_t kNeighbourFreshNs = 30'000'000'000;
/// Age from which an entry is no longer used.
inline constexpr std::uint64_t kNeighbourForgottenNs = 120'000'000'000;

class NeighbourCache {
 public:
  struct Found {
    MacAddress link{};
    bool stale = false;
  };

  /// Returns the entry of an address, or nullopt if there is none or it has expired. Any lane.
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

  // Only lane 0 may call the following functions.
  void learn(const PeerAddress& address, const MacAddress& link, std::uint64_t now_ns) noexcept {
    if (!follow(address, link, now_ns))
      entries_[next_++ % kMaxNeighbours].write({true, address, link, now_ns});
  }
  /// Updates the entry of a neighbour that has one; an announcement does not create an entry. Returns false
  /// if there is no entry.
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
