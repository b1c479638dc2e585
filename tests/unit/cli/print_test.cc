// SPDX-License-Identifier: Apache-2.0
#include "cli/sluicectl/print.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace sluice::ctl {
namespace {

std::string printed(const Json& result, bool as_json = false) {
  testing::internal::CaptureStdout();
  print(result, as_json);
  return testing::internal::GetCapturedStdout();
}

TEST(Print, ShowsALineForEachMemberOfAnObject) {
  EXPECT_EQ(printed({{"state", "up"}, {"calls", 7}, {"draining", false}, {"share", 0.25}, {"peer", nullptr}}),
            "calls: 7\ndraining: no\npeer: -\nshare: 0.2\nstate: up\n");
}

TEST(Print, ShowsAListOfWordsInOneLine) {
  EXPECT_EQ(printed({{"in_force", {"upstream.second.exports", "log_level"}}, {"restart", Json::array()}}),
            "in_force: upstream.second.exports,log_level\nrestart: -\n");
}

TEST(Print, IndentsWhatIsInside) {
  EXPECT_EQ(printed({{"reactor", {{"number", 1}, {"idle", Json::object()}}}}),
            "reactor:\n  idle: -\n  number: 1\n");
}

TEST(Print, MakesATableOfAListOfObjects) {
  const Json rows = {{{"name", "first"}, {"ports", {1, 2}}},
                     {{"name", "other"}, {"last", {{"code", 3}, {"why", "x"}}}}};
  EXPECT_EQ(printed(rows),
            "name   ports  last\n"
            "first  1,2    -\n"
            "other  -      code=3 why=x\n");
  EXPECT_EQ(printed({{"connections", rows}}),
            "connections:\n"
            "  name   ports  last\n"
            "  first  1,2    -\n"
            "  other  -      code=3 why=x\n");
}

TEST(Print, SaysNoneForAnEmptyList) {
  EXPECT_EQ(printed(Json::array()), "none\n");
}

TEST(Print, WritesAnyValueAsJson) {
  EXPECT_EQ(printed({1, "two"}, true), "[\n  1,\n  \"two\"\n]\n");
}

std::string printed_in_parts(const std::vector<Json>& parts, bool as_json) {
  testing::internal::CaptureStdout();
  RowPrinter printer(as_json);
  for (const Json& part : parts) printer.print(part);
  printer.finish();
  return testing::internal::GetCapturedStdout();
}

TEST(Print, PrintsAListInPartsAsTheWholeList) {
  const Json one = {{"connection", 1}, {"host", "a\nb"}, {"sides", {{"ours", {1, 2}}}}};
  const Json two = {{"connection", 2}, {"host", ""}, {"sides", Json::object()}};
  for (const bool as_json : {false, true}) {
    const std::string whole = printed(Json::array({one, two, one}), as_json);
    EXPECT_EQ(printed_in_parts({Json::array({one, two, one})}, as_json), whole);
    EXPECT_EQ(printed_in_parts({Json::array({one}), Json::array(), Json::array({two, one})}, as_json), whole);
    EXPECT_EQ(printed_in_parts({Json::array(), Json::array()}, as_json), printed(Json::array(), as_json));
    EXPECT_EQ(printed_in_parts({}, as_json), printed(Json::array(), as_json));
  }
}

TEST(Print, APartWithFurtherColumnsHasAHeaderOfItsOwn) {
  EXPECT_EQ(printed_in_parts({Json::array({{{"a", 1}}}), Json::array({{{"a", 1000}}}),
                              Json::array({{{"a", 2}, {"b", "x"}}})},
                             false),
            "a\n1\n1000\na     b\n2     x\n");
}

}  // namespace
}  // namespace sluice::ctl
