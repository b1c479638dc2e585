// SPDX-License-Identifier: Apache-2.0
//
// Numbers and hashes that peers cannot predict. Numbers serve as communication identifiers and initial
// packet sequence numbers; keyed hashes find values that peers choose. Single-threaded.
#pragma once

#include <sys/random.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "dataplane/base/net_address.h"
#include "dataplane/base/setup_error.h"
#include "dataplane/base/siphash.h"

namespace sluice::cm {

/// Makes numbers that are the SipHash of a counter with a key from the kernel.
class RandomNumbers {
 public:
  /// Equal values of `seed` give equal numbers, for tests. Zero takes the key from the kernel. Throws
  /// SetupError.
  explicit RandomNumbers(std::uint64_t seed = 0) {
    if (seed != 0)
      std::memcpy(key_.data(), &seed, sizeof seed);
    else if (::getrandom(key_.data(), key_.size(), 0) != static_cast<ssize_t>(key_.size()))
      throw SetupError("The kernel provides no random bytes (getrandom) for identifiers of connections.");
  }

  std::uint64_t next() noexcept {
    ++count_;
    return siphash(key_, std::as_bytes(std::span(&count_, 1)));
  }
  std::uint32_t packet_sequence_number() noexcept { return static_cast<std::uint32_t>(next() & 0xFFFFFF); }

 private:
  HashKey key_{};
  std::uint64_t count_ = 0;
};

/// A number that a peer has chosen.
struct RemoteKey {
  PeerAddress address;
  std::uint32_t number = 0;
  bool operator==(const RemoteKey&) const = default;
};

/// Hash of values that peers choose: addresses, communication identifiers, queue pair numbers. The hash is
/// keyed, so that a peer cannot choose values that collide in one bucket.
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
