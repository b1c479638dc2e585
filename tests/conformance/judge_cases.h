// SPDX-License-Identifier: Apache-2.0
//
// Common cases for the judge, independent of the version. A step is a message of a client and its outcome;
// each version defines its Step type.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "cli/conformance/judge.h"

namespace sluice::conformance {

/// A client that breaks a rule in one step, and the requirement row that has to fail.
template <typename Step>
struct BadClient {
  const char* row;
  const char* step;
  std::function<void(Step&)> change;
};

inline void expect_each_passed(const std::vector<Result>& results) {
  for (const Result& result : results)
    EXPECT_EQ(result.outcome, Outcome::Passed) << result.test->name << ": " << result.detail;
}

inline void expect_each_not_seen(const std::vector<Result>& results) {
  for (const Result& result : results) {
    EXPECT_EQ(result.outcome, Outcome::Skipped) << result.test->name;
    EXPECT_EQ(result.detail.rfind("Not seen: ", 0), 0u) << result.detail;
  }
}

/// Checks that each bad client fails by its row, and that every rule of the version fails for some bad
/// client.
template <typename Step, typename JudgeSteps>
void expect_each_rule_broken(std::uint32_t version, const std::vector<Step>& good,
                             const std::vector<BadClient<Step>>& bad_clients, JudgeSteps judge) {
  std::set<std::string> shown;
  for (const BadClient<Step>& bad : bad_clients) {
    std::vector<Step> steps = good;
    const auto step =
        std::find_if(steps.begin(), steps.end(), [&](const Step& s) { return s.name == bad.step; });
    ASSERT_NE(step, steps.end()) << bad.step;
    bad.change(*step);
    bool failed = false;
    for (const Result& result : judge(steps)) {
      const auto rows = rows_of(*result.test);
      if (result.outcome != Outcome::Failed || std::find(rows.begin(), rows.end(), bad.row) == rows.end())
        continue;
      failed = true;
      shown.insert(result.test->name);
      EXPECT_FALSE(result.history.empty()) << bad.row;
    }
    EXPECT_TRUE(failed) << bad.row << " of " << bad.step;
  }
  for (const Rule* rule : client_rules(version))
    EXPECT_EQ(shown.count(rule->test.name), 1u) << rule->test.name;
}

}  // namespace sluice::conformance
