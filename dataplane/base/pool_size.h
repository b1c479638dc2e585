// SPDX-License-Identifier: Apache-2.0
//
// Pool sizes as sums over the holders, each with the number of elements that it may hold at a time. For
// setup; any thread.
#pragma once

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string_view>

#include "dataplane/base/setup_error.h"

namespace sluice {

struct PoolHolder {
  std::string_view who;
  std::uint32_t elements = 0;
};
using PoolHolders = std::initializer_list<PoolHolder>;

constexpr std::uint32_t pool_size(PoolHolders holders) noexcept {
  std::uint32_t sum = 0;
  for (const PoolHolder& holder : holders) sum += holder.elements;
  return sum;
}

/// Returns `configured`. Throws SetupError if the pool `name` has fewer elements than the minimum, `least`,
/// with which calls can be served one at a time.
inline std::uint32_t require_pool(std::string_view name, std::uint32_t configured, PoolHolders least) {
  if (configured >= pool_size(least)) return configured;
  char sentence[512] = {};
  std::size_t used = 0;
  const auto add = [&](std::string_view text) {
    used += text.copy(sentence + used, sizeof sentence - 1 - used);
  };
  const auto add_number = [&](std::uint32_t number) {
    char digits[10];
    add({digits, std::to_chars(digits, digits + sizeof digits, number).ptr});
  };
  add(name);
  add(" is ");
  add_number(configured);
  add(", less than the sum of");
  for (const PoolHolder& holder : least) {
    add(&holder == least.begin() ? " " : ", ");
    add_number(holder.elements);
    add(" for ");
    add(holder.who);
  }
  add(".");
  throw SetupError(sentence);
}

}  // namespace sluice
