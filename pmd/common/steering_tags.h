// SPDX-License-Identifier: Apache-2.0
//
// Generator of unpredictable lkeys and rkeys: a keyed function of a counter, so that a peer that collects
// steering tags cannot predict the next one (RFC 8166, section 8.1.1). Only the reactor that owns the device
// may call.
#pragma once

#include <cstdint>
#include <span>

#include "dataplane/base/siphash.h"

namespace sluice::rdma {

class SteeringTags {
 public:
  /// Setup. Gets a random key from the kernel. Throws SetupError.
  SteeringTags();
  std::uint64_t next() noexcept {
    ++count_;
    return siphash(key_, std::as_bytes(std::span(&count_, 1)));
  }

 private:
  HashKey key_{};
  std::uint64_t count_ = 0;
};

}  // namespace sluice::rdma
