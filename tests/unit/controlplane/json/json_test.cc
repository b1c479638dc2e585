// SPDX-License-Identifier: Apache-2.0
#include "controlplane/json/json.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

namespace sluice {
namespace {

/// Returns a value with the same content for both JSON types.
template <typename Value>
Value sample() {
  Value made = {{"unsigned", 7u},
                {"negative", -7},
                {"fraction", 0.1},
                {"whole", 1.0},
                {"large", 1e300},
                {"text", "a \"quoted\" line\n\xc3\xa9"},
                {"yes", true},
                {"nothing", nullptr},
                {"empty list", Value::array()},
                {"empty object", Value::object()},
                {"words", {"one", "two"}},
                {"nested", {{"numbers", {1, 2, 3}}}}};
  made["list"].push_back({{"key", 1}});
  made["list"].push_back("text");
  return made;
}

TEST(Json, writes_the_text_that_the_library_writes) {
  EXPECT_EQ(sample<Json>().dump(), sample<nlohmann::json>().dump());
  EXPECT_EQ(sample<Json>().dump(2), sample<nlohmann::json>().dump(2));
  EXPECT_EQ(sample<Json>().dump(-1, Json::Encoding::Ascii), sample<nlohmann::json>().dump(-1, ' ', true));
}

TEST(Json, reads_what_the_library_reads_and_refuses_what_it_refuses) {
  for (const char* text : {R"({"a":[1,-2,3.5,1e3,true,null,"\u00e9"],"a":{}})", "[", "{\"a\"", "[1,2,]",
                           "\"\\ud800\"", "nan", " [ ] ", "{}{}", "", "123456789012345678901234567890",
                           "18446744073709551615", "-9223372036854775808"}) {
    const auto ours = Json::try_parse(text);
    const auto theirs = nlohmann::json::parse(text, nullptr, false);
    ASSERT_EQ(ours.has_value(), !theirs.is_discarded()) << text;
    if (ours) {
      EXPECT_EQ(ours->dump(), theirs.dump()) << text;
    }
  }
}

TEST(Json, text_that_is_nested_too_deep_is_refused) {
  const std::string allowed = std::string(Json::kMaxDepth, '[') + std::string(Json::kMaxDepth, ']');
  EXPECT_TRUE(Json::try_parse(allowed));
  EXPECT_FALSE(Json::try_parse('[' + allowed + ']'));
  EXPECT_FALSE(Json::try_parse(std::string(1'000'000, '[')));
}

TEST(Json, bytes_that_are_not_utf8_are_refused_or_replaced) {
  const Json value = std::string("a\xff");
  EXPECT_THROW(value.dump(), JsonError);
  EXPECT_EQ(value.dump(-1, Json::Encoding::Replaced), "\"a\xef\xbf\xbd\"");
  EXPECT_EQ(value.dump(-1, Json::Encoding::Ascii), "\"a\\ufffd\"");
}

TEST(Json, wrong_use_throws) {
  const Json value = {{"number", 1}, {"list", {1, 2}}};
  EXPECT_THROW(value["other"], JsonError);
  EXPECT_THROW(value["list"][2], JsonError);
  EXPECT_THROW(value["number"].get<std::string>(), JsonError);
  EXPECT_THROW(value["list"].get<double>(), JsonError);
  EXPECT_EQ(value.find("other"), nullptr);
  EXPECT_EQ(value["number"].find("other"), nullptr);
}

TEST(Json, numbers_compare_by_value) {
  EXPECT_EQ(Json(1), Json(1u));
  EXPECT_EQ(Json(1.0), Json(1));
  EXPECT_NE(Json(1), Json("1"));
  EXPECT_LT(Json(-1), Json(1u));
  EXPECT_LT(Json("a"), Json("b"));
  EXPECT_EQ(sample<Json>(), Json::parse(sample<Json>().dump()));
}

TEST(Json, members_are_added_replaced_and_removed) {
  Json value;
  value["b"] = 1;
  value["a"] = 2;
  value.update({{"b", 3}, {"c", 4}});
  EXPECT_EQ(value.dump(), R"({"a":2,"b":3,"c":4})");
  value.erase("b");
  EXPECT_EQ(value.value("b", 9), 9);
  EXPECT_EQ(value.size(), 2u);
}

}  // namespace
}  // namespace sluice
