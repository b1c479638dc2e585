// SPDX-License-Identifier: Apache-2.0
#include "controlplane/admin/schema.h"

#include <gtest/gtest.h>

namespace sluice::admin {
namespace {

const Field kResult =
    object("", "",
           {text("state", "its state").one_of({"up", "down"}), whole("calls", "calls").if_any(),
            object("oldest", "the oldest", {number("age_s", "its age")}).or_null(),
            rows("parts", "the parts", {flag("on", "whether it is on")}),
            map("fields", "any", {.type = Type::Scalar})});

Json good() {
  return {{"state", "up"},
          {"calls", 3},
          {"oldest", {{"age_s", 1.5}}},
          {"parts", {{{"on", true}}}},
          {"fields", {{"peer", "a"}, {"n", 1}, {"b", false}}}};
}

TEST(Schema, a_value_that_is_as_declared_has_no_mismatch) {
  EXPECT_EQ(mismatch(kResult, good()), "");
  Json other = good();
  other.erase("calls");
  other["oldest"] = nullptr;
  other["parts"] = Json::array();
  EXPECT_EQ(mismatch(kResult, other), "");
}

TEST(Schema, a_mismatch_names_its_place) {
  /// Returns the mismatch of the result with `value` at `key`, or at `inner` inside `key`.
  const auto with = [](const char* key, const Json& value, const char* inner = nullptr) {
    Json changed = good();
    (inner == nullptr ? changed[key] : changed[key][inner]) = value;
    return mismatch(kResult, changed);
  };
  const auto with_parts = [](const Json& parts) {
    Json changed = good();
    changed["parts"] = parts;
    return mismatch(kResult, changed);
  };
  EXPECT_EQ(with("state", "sideways"), "result.state has to be one of up, down");
  EXPECT_EQ(with("calls", -1), "result.calls has to be a whole number");
  EXPECT_EQ(with("calls", nullptr), "result.calls has to be a whole number") << "absent, not null";
  EXPECT_EQ(with("oldest", "old", "age_s"), "result.oldest.age_s has to be a number");
  EXPECT_EQ(with("oldest", 1, "more"), "result.oldest has no field more");
  EXPECT_EQ(with_parts(Json::array({{{"on", 1}}})), "result.parts[0].on has to be true or false");
  EXPECT_EQ(with_parts(Json::array({{{"on", true}}, Json::object()})), "result.parts[1] lacks on");
  EXPECT_EQ(with("fields", Json::array(), "peer"),
            "result.fields.peer has to be true or false, a number, or text");
  EXPECT_EQ(with("fields", 1, "A sentence"), "result.fields has a key that is no name: A sentence");
  Json lacking = good();
  lacking.erase("state");
  EXPECT_EQ(mismatch(kResult, lacking), "result lacks state");
}

TEST(Schema, an_object_may_be_empty_or_whole) {
  const Field field = object("", "", {whole("calls", "calls")}).or_empty();
  EXPECT_EQ(mismatch(field, Json::object()), "");
  EXPECT_EQ(mismatch(field, {{"calls", 1}}), "");
  EXPECT_EQ(mismatch(field, {{"other", 1}}), "result lacks calls");
}

TEST(Schema, limits_hold) {
  EXPECT_EQ(mismatch(whole("n", "").at_most(7), 7, "n"), "");
  EXPECT_EQ(mismatch(whole("n", "").at_most(7), 8, "n"), "n has to be a whole number of at most 7");
  EXPECT_EQ(mismatch(whole32("n", ""), 0x1'0000'0000, "n"),
            "n has to be a whole number of at most 4294967295");
  const Field few = list("l", "", text("", "")).at_most(1);
  EXPECT_EQ(mismatch(few, {"a"}, "l"), "");
  EXPECT_EQ(mismatch(few, {"a", "b"}, "l"), "l has to be a list of at most 1, each text");
}

TEST(Schema, it_is_said_as_json_schema) {
  const Json schema = json_schema(kResult);
  EXPECT_EQ(schema["type"], "object");
  EXPECT_EQ(schema["additionalProperties"], false);
  EXPECT_EQ(schema["required"], (Json{"state", "oldest", "parts", "fields"}));
  EXPECT_EQ(schema["properties"]["state"],
            (Json{{"type", "string"}, {"description", "its state"}, {"enum", {"up", "down"}}}));
  EXPECT_EQ(schema["properties"]["calls"],
            (Json{{"type", "integer"}, {"description", "calls"}, {"minimum", 0}}));
  EXPECT_EQ(schema["properties"]["oldest"]["type"], (Json{"object", "null"}));
  EXPECT_EQ(schema["properties"]["parts"]["items"]["properties"]["on"]["type"], "boolean");
  EXPECT_EQ(schema["properties"]["fields"]["additionalProperties"]["type"],
            (Json{"boolean", "number", "string"}));
  EXPECT_EQ(json_schema(whole("n", "").at_most(7).or_else(3)),
            (Json{{"type", "integer"}, {"minimum", 0}, {"maximum", 7}, {"default", 3}}));
  EXPECT_EQ(json_schema(list("l", "", text("", "")).at_most(2))["maxItems"], 2);
  EXPECT_EQ(json_schema(object("", "", {}).or_empty())["anyOf"].size(), 2u);
}

}  // namespace
}  // namespace sluice::admin
