// SPDX-License-Identifier: Apache-2.0
//
// Our requester is judged in version 2 as any client is: it keeps the rules and bears every provocation. A client that does not
// is seen.
#include <gtest/gtest.h>

#include "tests/conformance/client_lab.h"

namespace sluice::conformance {
namespace {

constexpr std::uint64_t kPatienceNs = 5'000'000'000;
constexpr std::uint64_t kShortNs = 50'000'000;

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

TEST(JudgedClientV2, our_requester_bears_every_provocation) {
  JudgedClient lab(2);
  lab.serve(50);
  for (const Provocation* provocation : provocations_of(2)) {
    lab.client().forget_versions();
    const Result result = lab.provoke(*provocation, kPatienceNs);
    EXPECT_EQ(result.outcome, Outcome::Passed) << provocation->test.name << ": " << result.detail;
  }
  EXPECT_EQ(lab.client().wrong, 0u);
  for (const Result& result : lab.results())
    EXPECT_NE(result.outcome, Outcome::Failed) << result.test->name << ": " << result.detail;
}

/// What no provocation may take for right.
TEST(JudgedClientV2, a_client_that_falls_silent_bears_none) {
  for (const Provocation* provocation : provocations_of(2)) {
    JudgedClient lab(2);
    lab.serve(50);
    lab.spoil = [](Bytes&) { return 0; };
    EXPECT_NE(lab.provoke(*provocation, kShortNs).outcome, Outcome::Passed) << provocation->test.name;
  }
}

}  // namespace
}  // namespace sluice::conformance
