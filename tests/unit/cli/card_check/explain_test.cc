// SPDX-License-Identifier: Apache-2.0
#include "cli/card_check/explain.h"

#include <gtest/gtest.h>

#include <sstream>
#include <string>

namespace sluice::card_check {
namespace {

using Outcome = Result::Outcome;
using Verdict = Role::Verdict;

constexpr const char* kFlags = "static: Static.windows_are_what_the_flags_say";

Report report_of(const char* windows, bool extended = false) {
  Report report;
  report.facts = {{"provider",
                   {{"name", "any"},
                    {"extended_posting", extended},
                    {"extended_polling", extended},
                    {"max_posted_reads", 0}}},
                  {"attributes", {{"max_sge_rd", 13}}}};
  report.results = {{kFlags, Outcome::Passed, "", {{"windows", windows}}},
                    {"loopback: Verbs/DriverTest.sends/newest", Outcome::Passed, "", {}}};
  return report;
}

Verdict verdict_of(const Report& report, const std::string& name) {
  for (const Role& role : roles_of(report))
    if (role.name == name) return role.verdict;
  ADD_FAILURE() << name;
  return Verdict::Fails;
}

TEST(Explain, a_card_with_windows_has_all_roles) {
  for (const Role& role : roles_of(report_of("yes"))) EXPECT_EQ(role.verdict, Verdict::Works) << role.name;
}

TEST(Explain, a_card_without_windows_serves_and_is_a_client_by_regions) {
  Report report = report_of("no");
  EXPECT_EQ(verdict_of(report, "server"), Verdict::Works);
  EXPECT_EQ(verdict_of(report, "gateway with TCP upstreams"), Verdict::Works);
  EXPECT_EQ(verdict_of(report, "version 2"), Verdict::Works);
  EXPECT_EQ(verdict_of(report, "RDMA upstreams"), Verdict::Expected);
  // It cannot bind the windows that it allocates, and nothing uses them.
  report.results.push_back(
      {"static: Static.a_window_that_can_be_allocated_can_be_used", Outcome::Failed, "", {}});
  report.results.push_back({"loopback: Verbs/Refusal.keys/regions", Outcome::Passed, "", {}});
  EXPECT_EQ(verdict_of(report, "RDMA upstreams"), Verdict::Works);
  EXPECT_EQ(verdict_of(report, "reverse gateway"), Verdict::Works);
  for (const Role& role : roles_of(report))
    if (std::string(role.name) == "reverse gateway") {
      EXPECT_NE(role.remark.find("window_less"), std::string::npos) << role.remark;
    }
  report.results.back().outcome = Outcome::Failed;
  EXPECT_EQ(verdict_of(report, "reverse gateway"), Verdict::Fails);
  EXPECT_EQ(verdict_of(report, "server"), Verdict::Works);
}

TEST(Explain, a_failure_of_regions_is_nothing_to_a_card_with_windows) {
  Report report = report_of("yes");
  report.results.push_back({"loopback: Verbs/Refusal.keys/regions", Outcome::Failed, "", {}});
  for (const Role& role : roles_of(report)) EXPECT_EQ(role.verdict, Verdict::Works) << role.name;
}

TEST(Explain, without_a_test_of_the_data_path_roles_are_only_expected) {
  Report report = report_of("yes");
  report.results.pop_back();
  EXPECT_EQ(verdict_of(report, "server"), Verdict::Expected);
}

TEST(Explain, a_failure_that_the_driver_avoids_changes_no_role_and_names_the_workaround) {
  Report report = report_of("yes");
  report.results[0].outcome = Outcome::Failed;
  EXPECT_EQ(verdict_of(report, "RDMA upstreams"), Verdict::Works);
  bool named = false;
  for (const std::string& sentence : workarounds_of(report))
    named = named || sentence == "Windows are used as they were probed, not as the flags say.";
  EXPECT_TRUE(named);
}

TEST(Explain, a_failure_of_an_interface_that_is_not_used_changes_no_role) {
  for (const bool extended : {false, true}) {
    Report report = report_of("yes", extended);
    report.results.push_back({"loopback: Verbs/DriverTest.sends/extended", Outcome::Failed, "", {}});
    EXPECT_EQ(verdict_of(report, "server"), extended ? Verdict::Fails : Verdict::Works);
  }
}

TEST(Explain, a_failure_of_windows_ends_the_roles_of_a_client_only) {
  Report report = report_of("yes");
  report.results.push_back(
      {"loopback: Windows.accesses_outside_of_a_window_are_refused", Outcome::Failed, "", {}});
  EXPECT_EQ(verdict_of(report, "server"), Verdict::Works);
  EXPECT_EQ(verdict_of(report, "reverse gateway"), Verdict::Fails);
}

TEST(Explain, any_other_failure_ends_every_role) {
  Report report = report_of("yes");
  report.results.push_back({"loopback: Loopback.batches_of_16/classic", Outcome::Failed, "", {}});
  for (const Role& role : roles_of(report)) EXPECT_EQ(role.verdict, Verdict::Fails) << role.name;
}

TEST(Explain, facts_that_are_missing_or_of_another_type_are_unknown) {
  Report report;
  report.facts = {{"provider", 3}, {"system", Json::array()}, {"attributes", {{"max_sge_rd", nullptr}}}};
  std::ostringstream out;
  explain(out, report);
  EXPECT_NE(out.str().find("provider unknown"), std::string::npos) << out.str();
}

}  // namespace
}  // namespace sluice::card_check
