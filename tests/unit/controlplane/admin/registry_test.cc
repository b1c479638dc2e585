// SPDX-License-Identifier: Apache-2.0
#include "controlplane/admin/registry.h"

#include <gtest/gtest.h>

namespace sluice::admin {
namespace {

using nlohmann::json;

constexpr const char* kEcho = R"({"jsonrpc":"2.0","id":7,"method":"echo","params":{"a":1}})";

class Methods : public ::testing::Test {
 protected:
  Methods() {
    registry.add("echo", Access::Read, [](const json& parameters) { return parameters; });
    registry.add("change", Access::Change, [this](const json&) -> json { return ++changes; });
    registry.add("fail", Access::Read, [](const json&) -> json { throw MethodError("No such thing."); });
    registry.add("typed", Access::Read,
                 [](const json& parameters) { return parameters.at("n").get<std::uint32_t>(); });
  }
  json ask(const std::string& text, Access access = Access::Change) const {
    return json::parse(registry.answer(text, access));
  }
  Registry registry;
  int changes = 0;
};

TEST_F(Methods, a_result_comes_with_the_id_of_its_request) {
  const json answer = ask(kEcho);
  EXPECT_EQ(answer["jsonrpc"], "2.0");
  EXPECT_EQ(answer["id"], 7);
  EXPECT_EQ(answer["result"]["a"], 1);
  EXPECT_FALSE(answer.contains("error"));
}

TEST_F(Methods, each_defect_has_its_error_code) {
  EXPECT_EQ(ask("{")["error"]["code"], -32700);
  EXPECT_EQ(ask("[]")["error"]["code"], -32600);
  EXPECT_EQ(ask(R"({"jsonrpc":"2.0","id":1,"method":5})")["error"]["code"], -32600);
  EXPECT_EQ(ask(R"({"jsonrpc":"2.0","id":{},"method":"echo"})")["error"]["code"], -32600);
  EXPECT_EQ(ask(R"({"jsonrpc":"2.0","id":1,"method":"nope"})")["error"]["code"], -32601);
  EXPECT_EQ(ask(R"({"jsonrpc":"2.0","id":1,"method":"echo","params":[1]})")["error"]["code"], -32602);
  EXPECT_EQ(ask(R"({"jsonrpc":"2.0","id":1,"method":"typed"})")["error"]["code"], -32602);
  const json failed = ask(R"({"jsonrpc":"2.0","id":1,"method":"fail"})");
  EXPECT_EQ(failed["error"]["code"], -32000);
  EXPECT_EQ(failed["error"]["message"], "No such thing.");
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
