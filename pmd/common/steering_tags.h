// SPDX-License-Identifier: Apache-2.0
//
// Numbers for lkeys, rkeys and the like: a keyed function of a counter, so that a peer that collects tags
// cannot tell the next one (RFC 8166, section 8.1.1). The reactor that owns the device.
#pragma once

#include <cstdint>
#include <span>

#include "dataplane/base/siphash.h"

namespace sluice::rdma {

class SteeringTags {
 public:
  /// Setup: takes a key from the kernel. SetupError.
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
