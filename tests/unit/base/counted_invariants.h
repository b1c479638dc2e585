// SPDX-License-Identifier: Apache-2.0
//
// Counts the failures of invariants on this thread while an object exists, instead of aborting. Tests of the
// release build's behaviour use it.
#pragma once

#include "dataplane/base/invariant.h"

namespace sluice {

class CountedInvariants {
 public:
  CountedInvariants() noexcept : before_(invariant_failures()) { count_invariants() = true; }
  ~CountedInvariants() { count_invariants() = false; }
  CountedInvariants(const CountedInvariants&) = delete;
  CountedInvariants& operator=(const CountedInvariants&) = delete;

  std::uint64_t failed(Invariant kind) const noexcept {
    const auto at = static_cast<std::size_t>(kind);
    return invariant_failures()[at] - before_[at];
  }

 private:
  const std::array<std::uint64_t, kInvariantCount> before_;
};

}  // namespace sluice
