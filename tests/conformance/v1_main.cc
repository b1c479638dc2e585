// SPDX-License-Identifier: Apache-2.0
//
// The tests of version 1. With --handed-over every call is served by another reactor.
#include <cstdio>
#include <string_view>

#include "tests/conformance/lab.h"

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  for (int i = 1; i < argc; ++i) {
    if (std::string_view(argv[i]) != "--handed-over") {
      std::fprintf(stderr, "Unknown argument '%s': there is --handed-over.\n", argv[i]);
      return 2;
    }
    sluice::conformance::hand_calls_over();
  }
  return RUN_ALL_TESTS();
}
