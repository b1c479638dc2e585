// SPDX-License-Identifier: Apache-2.0
#include "controlplane/admin/registry.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/unit/base/counted_invariants.h"

namespace sluice::admin {
namespace {

constexpr const char* kEcho = R"({"jsonrpc":"2.0","id":7,"method":"echo","params":{"a":1}})";

class Methods : public ::testing::Test {
 protected:
  Methods() {
    registry.add(
        {.name = "echo",
         .needed = Access::Read,
         .parameters = {whole("a", "any number"), text("b", "any text").or_else("x"),
                        list("c", "numbers", whole32("", "a number")).at_most(2).or_else(Json::array())}},
        [](const Json& parameters) { return parameters; });
    registry.add({.name = "change"}, [this](const Json&) -> Json { return ++changes; });
    registry.add({.name = "fail", .needed = Access::Read},
                 [](const Json&) -> Json { throw MethodError("No such thing."); });
    registry.add({.name = "broken", .needed = Access::Read},
                 [](const Json& parameters) { return parameters.at("undeclared"); });
  }
  /// Returns the code and the message of the error with which `parameters` are answered.
  std::pair<int, std::string> refusal(const Json& parameters) const {
    const Json request = {{"jsonrpc", "2.0"}, {"id", 1}, {"method", "echo"}, {"params", parameters}};
    const Json answer = ask(request.dump());
    if (!answer.contains("error")) return {0, answer.dump()};
    return {answer["error"]["code"].get<int>(), answer["error"]["message"].get<std::string>()};
  }
  Json ask(const std::string& text, Access access = Access::Change) const {
    return Json::parse(registry.answer(text, access));
  }
  Registry registry;
  int changes = 0;
};

TEST_F(Methods, a_result_comes_with_the_id_of_its_request) {
  const Json answer = ask(kEcho);
  EXPECT_EQ(answer["jsonrpc"], "2.0");
  EXPECT_EQ(answer["id"], 7);
  EXPECT_EQ(answer["result"]["a"], 1);
  EXPECT_FALSE(answer.contains("error"));
}

TEST_F(Methods, a_registry_belongs_to_the_thread_that_answers_first) {
  ask(kEcho);
  std::thread([this] {
    const CountedInvariants counted;
    ask(kEcho);
    EXPECT_EQ(counted.failed(Invariant::object_owner), 1u);
  }).join();
  const CountedInvariants counted;
  ask(kEcho);
  EXPECT_EQ(counted.failed(Invariant::object_owner), 0u);
}

TEST_F(Methods, each_defect_has_its_error_code) {
  EXPECT_EQ(ask("{")["error"]["code"], -32700);
  EXPECT_EQ(ask("[]")["error"]["code"], -32600);
  EXPECT_EQ(ask(R"({"jsonrpc":"2.0","id":1,"method":5})")["error"]["code"], -32600);
  EXPECT_EQ(ask(R"({"jsonrpc":"2.0","id":{},"method":"echo"})")["error"]["code"], -32600);
  EXPECT_EQ(ask(R"({"jsonrpc":"2.0","id":1,"method":"nope"})")["error"]["code"], -32601);
  EXPECT_EQ(ask(R"({"jsonrpc":"2.0","id":1,"method":"echo","params":[1]})")["error"]["code"], -32602);
  EXPECT_EQ(ask(R"({"jsonrpc":"2.0","id":1,"method":"echo"})")["error"]["code"], -32602);
  EXPECT_EQ(ask(R"({"jsonrpc":"2.0","id":1,"method":"broken"})")["error"]["code"], -32603);
  const Json failed = ask(R"({"jsonrpc":"2.0","id":1,"method":"fail"})");
  EXPECT_EQ(failed["error"]["code"], -32000);
  EXPECT_EQ(failed["error"]["message"], "No such thing.");
}

TEST_F(Methods, parameters_are_as_they_are_declared_or_refused) {
  using Refusal = std::pair<int, std::string>;
  EXPECT_EQ(refusal(Json::object()), Refusal(-32602, "a is needed: a whole number, any number."));
  EXPECT_EQ(refusal({{"a", 1}, {"z", 2}}),
            Refusal(-32602, "'echo' has no parameter 'z'. Its parameters are: a, b, c."));
  EXPECT_EQ(refusal({{"a", "1"}}), Refusal(-32602, "a has to be a whole number."));
  for (const Json& a : {Json(-1), Json(1.5), Json(nullptr), Json(true), Json::array(), Json::object()})
    EXPECT_EQ(refusal({{"a", a}}).first, -32602) << a;
  EXPECT_EQ(refusal({{"a", 1}, {"b", 1}}), Refusal(-32602, "b has to be text."));
  EXPECT_EQ(refusal({{"a", 1}, {"c", {1, 2, 3}}}).first, -32602) << "too many";
  EXPECT_EQ(refusal({{"a", 1}, {"c", {1, 1ull << 32}}}),
            Refusal(-32602, "c[1] has to be a whole number of at most 4294967295."));
}

TEST_F(Methods, a_parameter_that_is_left_out_has_its_default) {
  EXPECT_EQ(ask(kEcho)["result"], (Json{{"a", 1}, {"b", "x"}, {"c", Json::array()}}));
  const std::string most = R"({"jsonrpc":"2.0","id":7,"method":"echo","params":{"a":18446744073709551615}})";
  EXPECT_EQ(ask(most)["result"]["a"], ~std::uint64_t{0});
}

TEST_F(Methods, a_registry_names_what_it_has) {
  std::vector<std::string> names;
  for (const Declaration& one : registry.declarations()) names.push_back(one.name);
  EXPECT_EQ(names, (std::vector<std::string>{"broken", "change", "echo", "fail"}));
}

TEST_F(Methods, a_notification_is_executed_and_not_answered) {
  EXPECT_EQ(registry.answer(R"({"jsonrpc":"2.0","method":"change"})", Access::Change), "");
  EXPECT_EQ(changes, 1);
  EXPECT_EQ(registry.answer(R"({"jsonrpc":"2.0","method":"nope"})", Access::Change), "");
}

TEST_F(Methods, read_access_does_not_change_anything) {
  const std::string change = R"({"jsonrpc":"2.0","id":1,"method":"change"})";
  EXPECT_EQ(ask(change, Access::Read)["error"]["code"], -32001);
  EXPECT_EQ(changes, 0);
  EXPECT_EQ(ask(kEcho, Access::Read)["result"]["a"], 1);
  EXPECT_EQ(ask(kEcho, Access::None)["error"]["code"], -32001);
  EXPECT_EQ(ask(change, Access::Change)["result"], 1);
}

}  // namespace
}  // namespace sluice::admin
