// SPDX-License-Identifier: Apache-2.0
//
// The code that selftest.py mutates.
#include "toy.h"

namespace toy {

int calls = 0;

int limited(int value) {
  ++calls;
  if (value > 10) return 10;
  return value;
}

int drained(int left) {
  while (left > 0) {
    left -= 1;
  }
  return left;
}

int never_called(int value) {
  return value < 3 ? 1 : 2;
}

}  // namespace toy
