// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace toy {

int limited(int value);
int drained(int left);
int never_called(int value);

/// The program also runs doubled(); only the compiler evaluates tripled().
constexpr int doubled(int value) {
  return value * 2;
}
constexpr int tripled(int value) {
  return value * 3;
}
static_assert(doubled(2) == 4 && tripled(2) == 6);

struct Handle {
  int* open = nullptr;
  void close() { *open -= 1; }
  ~Handle() { close(); }
};

}  // namespace toy
