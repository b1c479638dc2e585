// SPDX-License-Identifier: Apache-2.0
//
// Messages that differ from a given one by a few bits, for checks that compare words with one another.
#pragma once

#include <cstddef>
#include <vector>

#include "dataplane/xdr/cursor.h"

namespace sluice::rpcrdma {

/// Calls `check` with the lowest bit of each two of the first words changed.
template <typename Check>
void check_two_words_changed(const std::vector<std::byte>& message, const Check& check) {
  constexpr std::size_t kWords = 12;
  const auto lowest = [](std::size_t word) { return word * xdr::kUnit + xdr::kUnit - 1; };
  for (std::size_t one = 0; one < kWords; ++one)
    for (std::size_t other = one + 1; other < kWords && lowest(other) < message.size(); ++other) {
      std::vector<std::byte> changed = message;
      changed[lowest(one)] ^= std::byte{1};
      changed[lowest(other)] ^= std::byte{1};
      check(changed);
    }
}

}  // namespace sluice::rpcrdma
