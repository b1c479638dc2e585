// SPDX-License-Identifier: Apache-2.0
#include "dataplane/base/fixed_containers.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <vector>

#include "tests/unit/base/counted_invariants.h"

namespace sluice {
namespace {

struct Value {
  int number = 7;
  long other = 8;
};

TEST(FixedVector, values_are_those_that_were_added_in_their_order) {
  FixedVector<Value, 3> vector;
  EXPECT_TRUE(vector.values().empty());
  for (int i = 0; i < 3; ++i) vector.push_back({.number = i});
  const CountedInvariants counted;
  vector.push_back({.number = 3});
  EXPECT_EQ(counted.failed(Invariant::ring_index), 1u) << "there is no room";
  std::vector<int> numbers;
  for (const Value& value : vector.values()) numbers.push_back(value.number);
  EXPECT_EQ(numbers, (std::vector{0, 1, 2}));
  EXPECT_EQ(vector.values()[2].other, 8);
}

TEST(FixedVector, memory_that_is_not_used_is_not_touched) {
  using Vector = FixedVector<Value, 100>;
  alignas(Vector) std::array<std::byte, sizeof(Vector)> memory;
  std::memset(memory.data(), 0x55, memory.size());
  asm volatile(
      "" ::
          : "memory");  // the compiler may not drop the bytes that the constructor makes indeterminate
  auto* const vector = ::new (memory.data()) Vector;
  vector->push_back({});
  std::size_t touched = 0;
  for (const std::byte each : memory) touched += each != std::byte{0x55};
  EXPECT_LE(touched, sizeof(Value) + sizeof(std::size_t));
}

}  // namespace
}  // namespace sluice
