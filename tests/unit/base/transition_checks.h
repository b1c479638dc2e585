// SPDX-License-Identifier: Apache-2.0
//
// Checks of transition tables.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>

#include "dataplane/base/transition_table.h"

namespace sluice {

/// Returns the states that can follow `from`, directly or not, as bits.
template <typename State, State kLast>
inline std::uint32_t reachable(const TransitionTable<State, kLast>& table, State from) {
  std::uint32_t seen = 0;
  std::uint32_t before = 1;
  while (seen != before) {
    before = seen;
    for (std::size_t i = 0; i < table.kStates; ++i) {
      const auto state = static_cast<State>(i);
      if (state != from && (seen >> i & 1) == 0) continue;
      for (std::size_t j = 0; j < table.kStates; ++j)
        if (table.allows(state, static_cast<State>(j))) seen |= 1u << j;
    }
  }
  return seen;
}

/// Checks that every state is reached from the first one, and leads back to it.
template <typename State, State kLast>
void expect_rest_is_left_and_reached(const TransitionTable<State, kLast>& table) {
  const std::uint32_t all = (1u << table.kStates) - 1;
  EXPECT_EQ(reachable(table, State{}), all);
  for (std::size_t i = 0; i < table.kStates; ++i)
    EXPECT_EQ(reachable(table, static_cast<State>(i)) & 1u, 1u) << "from state " << i;
}

}  // namespace sluice
