// SPDX-License-Identifier: Apache-2.0
//
// Hash of values that peers choose: addresses, communication identifiers, queue pair numbers. The hash is
// keyed, so that a peer cannot choose values that collide in one bucket. Pure functions; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "dataplane/base/net_address.h"

namespace sluice::cm {

/// A number that a peer has chosen.
struct RemoteKey {
  PeerAddress address;
  std::uint32_t number = 0;
  bool operator==(const RemoteKey&) const = default;
};

class KeyedHash {
 public:
  explicit KeyedHash(std::uint64_t secret) : secret_(secret) {}

  std::size_t operator()(std::uint32_t number) const noexcept { return mix(secret_ ^ mix(secret_ + number)); }
  std::size_t operator()(const PeerAddress& address) const noexcept {
    std::uint64_t halves[2];
    std::memcpy(halves, address.bytes.data(), sizeof halves);
    return mix(mix(mix(secret_ + halves[0]) ^ halves[1]) + secret_);
  }
  std::size_t operator()(const RemoteKey& key) const noexcept {
    return mix((*this)(key.address) + mix(secret_ ^ key.number));
  }

 private:
  /// Finalizer of SplitMix64 (Steele, Lea, Flood 2014). Each bit of the input changes half of the output bits
  /// on average.
  static constexpr std::uint64_t mix(std::uint64_t x) noexcept {
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9;
    x = (x ^ x >> 27) * 0x94D049BB133111EB;
    return x ^ x >> 31;
  }

  std::uint64_t secret_;
};

}  // namespace sluice::cm
