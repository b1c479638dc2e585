// SPDX-License-Identifier: Apache-2.0
//
// Numbers that peers cannot predict, for communication identifiers and initial packet sequence numbers. They
// are the SipHash of a counter with a key from the kernel. Single-threaded.
#pragma once

#include <sys/random.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "dataplane/base/setup_error.h"
#include "dataplane/base/siphash.h"

namespace sluice::cm {

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

}  // namespace sluice::cm
