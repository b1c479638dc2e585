// SPDX-License-Identifier: Apache-2.0
//
// Methods that change state. The control plane is a fake that records the operations that it receives.
#include "controlplane/admin/methods.h"

#include <gtest/gtest.h>

#include "tests/unit/controlplane/admin/fake_operations.h"
#include "tests/unit/controlplane/lab.h"

namespace sluice::admin {
namespace {

class Changes : public ::testing::Test {
 protected:
  Changes() {
    add_changes(registry, operations, segment.layout(), config);
    add_trace(registry, operations, segment.layout(), config);
  }
  Json ask(const std::string& method, const Json& parameters = Json::object()) {
    const Json request = {{"jsonrpc", "2.0"}, {"id", 1}, {"method", method}, {"params", parameters}};
    std::string late;
    const std::string at_once = registry.answer(request.dump(), Access::Change, {}, [&late] {
      return [&late](const std::string& line) { late = line; };
    });
    return Json::parse(late.empty() ? at_once : late);
  }
  /// Calls a method with `save`. `answer_of_save` gets the answer when the save that waits is complete.
  void ask_to_save(const std::string& method, Json parameters) {
    parameters["save"] = true;
    answer_of_save.clear();
    const Json request = {{"jsonrpc", "2.0"}, {"id", 1}, {"method", method}, {"params", parameters}};
    ASSERT_EQ(registry.answer(request.dump(), Access::Change, {},
                              [this] { return [this](const std::string& line) { answer_of_save = line; }; }),
              "");
    ASSERT_EQ(answer_of_save, "") << "before it is saved";
  }
  Json saved_result(const std::string& method, const Json& parameters, const std::string& problem = {}) {
    ask_to_save(method, parameters);
    operations.waiting(problem);
    const Json answer = Json::parse(answer_of_save);
    return answer.contains("error") ? answer["error"]["message"] : answer["result"];
  }
  Json result(const std::string& method, const Json& parameters = Json::object()) {
    return ask(method, parameters)["result"];
  }
  std::string error(const std::string& method, const Json& parameters = Json::object()) {
    const Json answer = ask(method, parameters);
    return answer.contains("error") ? answer["error"]["message"].get<std::string>() : "";
  }

  lab::TestSegment segment{"changes"};
  config::Config config = lab::configuration();
  FakeOperations operations;
  Registry registry;
  std::string answer_of_save;
};

TEST_F(Changes, a_reload_says_what_is_in_force_and_what_needs_a_restart) {
  EXPECT_EQ(result("config_reload"), (Json{{"in_force", {"log_level"}},
                                           {"restart_control_plane", Json::array()},
                                           {"restart_both_planes", {"transport.credits"}}}));
  operations.defects = "f:3: defect\n";
  EXPECT_NE(error("config_reload").find("f:3: defect"), std::string::npos);
}

TEST_F(Changes, an_export_is_checked_as_in_the_file) {
  EXPECT_EQ(result("export_add", {{"path", "/b"}, {"read_only", true}}),
            (Json{{"path", "/b"}, {"saved", false}}));
  ASSERT_EQ(operations.exports.size(), 1u);
  EXPECT_STREQ(operations.exports[0].path, "/b");
  EXPECT_EQ(operations.exports[0].read_only, 1u);
  EXPECT_NE(error("export_add", {{"path", "/c"}, {"read_only", 3}}).find("true or false"), std::string::npos);
  EXPECT_NE(error("export_add", {{"path", "/c"}, {"x]\n[admin", 3}}).find("no parameter"), std::string::npos);
  EXPECT_NE(error("export_add", {{"path", "/c"}, {"hosts", {"a"}}}).find("hosts names 'a'"),
            std::string::npos);
  EXPECT_EQ(operations.exports.size(), 1u);
  config = config::parse(
      "[host_authentication]\nmethod = \"psk\"\n[[host_authentication.host]]\nname = \"a\"\nkey_files = "
      "[\"/k\"]\n",
      "f");
  EXPECT_EQ(result("export_add", {{"path", "/c"}, {"hosts", {"a"}}})["path"], "/c");
  ASSERT_EQ(operations.exports.size(), 2u);
  EXPECT_EQ(operations.exports[1].hosts[0].view(), "a");
  EXPECT_EQ(result("export_remove", {{"path", "/a"}})["path"], "/a");
  EXPECT_NE(error("export_remove", {{"path", "/z"}}).find("There is no export '/z'"), std::string::npos);
}

TEST_F(Changes, only_known_log_levels_are_set) {
  EXPECT_EQ(result("log_level", {{"level", "debug"}})["log_level"], "debug");
  EXPECT_NE(error("log_level", {{"level", "loud"}}), "");
  EXPECT_EQ(operations.log_level, "debug");
}

TEST_F(Changes, a_drain_starts_and_stops) {
  EXPECT_EQ(result("drain_start"), (Json{{"draining", true}, {"connections", 0}}));
  EXPECT_EQ(result("drain_status")["draining"], true);
  EXPECT_EQ(result("drain_stop"), (Json{{"draining", false}, {"connections", 0}}));
}

TEST_F(Changes, what_is_to_be_saved_is_in_force_when_it_has_been) {
  ask_to_save("export_add", {{"path", "/b"}, {"read_only", true}});
  ASSERT_TRUE(operations.exports.empty());
  operations.waiting("");
  EXPECT_EQ(Json::parse(answer_of_save)["result"], (Json{{"path", "/b"}, {"saved", true}}));
  ASSERT_EQ(operations.exports.size(), 1u);
  EXPECT_STREQ(operations.saved.at(0).path, "/b");
  EXPECT_EQ(operations.saved.at(0).in_use, 1u);
  EXPECT_EQ(saved_result("export_remove", {{"path", "/a"}}), (Json{{"path", "/a"}, {"saved", true}}));
  EXPECT_STREQ(operations.saved.at(1).path, "/a");
  EXPECT_EQ(operations.saved.at(1).in_use, 0u);
  EXPECT_EQ(saved_result("export_remove", {{"path", "/z"}})["saved"], true) << "it was removed before";
  for (const std::string& path : {'/' + std::string(300, 'x'), std::string("/a\0b", 4)})
    EXPECT_EQ(error("export_remove", {{"path", path}, {"save", true}}).find("There is no"), 0u);
  EXPECT_EQ(operations.saved.size(), 3u);
}

TEST_F(Changes, what_cannot_be_saved_changes_nothing) {
  EXPECT_EQ(saved_result("export_add", {{"path", "/b"}}, "The disk is full."),
            "Nothing was saved, and nothing has changed. The disk is full.");
  EXPECT_EQ(saved_result("export_remove", {{"path", "/a"}}, "The disk is full."),
            "Nothing was saved, and nothing has changed. The disk is full.");
  EXPECT_TRUE(operations.exports.empty());
  EXPECT_NE(error("export_add", {{"path", "/b"}, {"save", 3}}).find("true or false"), std::string::npos);
  EXPECT_NE(error("export_add", {{"path", "relative"}, {"save", true}}).find("start with '/'"),
            std::string::npos);
  EXPECT_EQ(operations.saved.size(), 2u) << "a defect is found before";
}

TEST_F(Changes, what_is_saved_and_has_no_place_is_said_to_be_so) {
  operations.full = true;
  EXPECT_EQ(saved_result("export_add", {{"path", "/b"}}),
            "The change is saved, but takes effect only after a restart. There is no place.\n");
  EXPECT_EQ(error("export_add", {{"path", "/b"}}), "There is no place.\n");
}

TEST_F(Changes, a_command_needs_a_connection_that_exists) {
  EXPECT_EQ(result("connection_close", {{"reactor", 0}, {"connection", 3}}), (Json{{"closing", true}}));
  EXPECT_EQ(operations.closed, 1);
  EXPECT_NE(error("connection_close", {{"reactor", 0}, {"connection", 4}}).find("There is no connection 4"),
            std::string::npos);
  EXPECT_NE(error("connection_close", {{"reactor", 0}}).find("connection is needed"), std::string::npos);
  EXPECT_NE(error("connection_close", {{"reactor", -1}, {"connection", 3}})
                .find("reactor has to be a whole number"),
            std::string::npos);
  EXPECT_EQ(operations.closed, 1);
}

TEST_F(Changes, a_trace_is_read_from_where_it_began) {
  segment::TraceRing& ring = segment.layout().reactors[0].trace;
  ring.add({.connection = 3, .xid = 1});
  EXPECT_EQ(result("trace_start", {{"reactor", 0}, {"connection", 3}})["next"], 1);
  EXPECT_EQ(operations.traced, true);
  ring.add({.connection = 3, .xid = 2, .program = 100003, .version = 3, .procedure = 1});
  ring.add({.connection = 4, .xid = 3});
  const Json read = result("trace_read", {{"reactor", 0}, {"connection", 3}, {"from", 1}});
  EXPECT_EQ(read["next"], 3);
  ASSERT_EQ(read["calls"].size(), 1u);
  EXPECT_EQ(read["calls"][0]["xid"], 2);
  EXPECT_EQ(read["calls"][0]["procedure"], "100003.3.1");
  result("trace_stop", {{"reactor", 0}, {"connection", 3}});
  EXPECT_EQ(operations.traced, false);
  EXPECT_NE(error("trace_read", {{"reactor", 99}, {"connection", 3}}), "");
}

}  // namespace
}  // namespace sluice::admin
