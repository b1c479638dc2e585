// SPDX-License-Identifier: Apache-2.0
//
// Our requester is judged in version 2 as any client is.
#include <gtest/gtest.h>

#include "tests/conformance/client_lab.h"

namespace sluice::conformance {
namespace {

TEST(JudgedClientV2, our_requester_keeps_the_rules) {
  JudgedClient lab(2);
  lab.serve(500);
  EXPECT_GE(lab.client().completed, 490u);
  EXPECT_EQ(lab.client().wrong, 0u);
  EXPECT_EQ(lab.client().refused, 0u);
  std::size_t passed = 0;
  for (const Result& result : lab.results()) {
    EXPECT_NE(result.outcome, Outcome::Failed) << result.test->name << ": " << result.detail;
    passed += result.outcome == Outcome::Passed;
  }
  EXPECT_GE(passed, 40u);
}

}  // namespace
}  // namespace sluice::conformance
