// SPDX-License-Identifier: Apache-2.0
//
// Legal transitions of a state machine, as a table that is checked at compile time. The owner of a state
// changes it in one function, which checks the table by an invariant. Any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>

namespace sluice {

/// Legal transitions between the states of an enumeration, whose values are consecutive and whose last one is
/// `kLast`.
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

}  // namespace sluice
