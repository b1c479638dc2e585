// SPDX-License-Identifier: Apache-2.0
//
// Legal transitions between the states of a gateway's calls and connections, checked at compile time for
// completeness and at run time by an invariant.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "dataplane/base/invariant.h"

namespace sluice::gateway {

template <typename State, State kLast>
class TransitionTable {
 public:
  static constexpr std::size_t kStates = static_cast<std::size_t>(kLast) + 1;

  /// Sets the successors of each state. The rows are in the order of the enumeration; a missing row does not
  /// compile.
  consteval TransitionTable(std::initializer_list<std::initializer_list<State>> rows) {
    if (rows.size() != kStates) throw "each state has a row";
    std::size_t from = 0;
    for (const auto& row : rows) {
      for (const State to : row) after_[from] |= static_cast<std::uint16_t>(1u << static_cast<unsigned>(to));
      ++from;
    }
  }
  constexpr bool allows(State from, State to) const noexcept {
    return (after_[static_cast<std::size_t>(from)] >> static_cast<unsigned>(to) & 1) != 0;
  }

 private:
  static_assert(kStates <= 16);
  std::array<std::uint16_t, kStates> after_{};
};

/// Changes `state` to `to`. A transition that the table does not allow fails an invariant.
template <typename State, State kLast>
inline void change_state(const TransitionTable<State, kLast>& table, State& state, State to) noexcept {
  static_cast<void>(SLUICE_INVARIANT(table.allows(state, to), gateway_state));
  state = to;
}

}  // namespace sluice::gateway
