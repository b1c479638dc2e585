// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace toy {

int limited(int value);
int drained(int left);
int never_called(int value);

/// A constant and a function that the compiler evaluates.
constexpr int doubled(int value) {
  return value * 2;
}
static_assert(doubled(2) == 4);
inline constexpr int kFour = doubled(2);

struct Handle {
  int* open = nullptr;
  void close() { *open -= 1; }
  ~Handle() { close(); }
};

}  // namespace toy
