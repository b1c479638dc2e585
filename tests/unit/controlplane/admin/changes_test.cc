// SPDX-License-Identifier: Apache-2.0
//
// The methods that change something, on a control plane that only records what it was asked.
#include "controlplane/admin/changes.h"

#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "controlplane/admin/trace.h"
#include "tests/unit/controlplane/lab.h"

namespace sluice::admin {
namespace {

using nlohmann::json;

class FakeOperations final : public Operations {
 public:
  void reload(Reloaded done) override {
    done({.changes = {.live = {"log_level"}, .restart_control = {}, .restart_both = {"transport.credits"}},
          .problem = defects});
  }
  void set_log_level(const std::string& level) override { log_level = level; }
  void set_export(const segment::ExportConfig& entry) override { exports.push_back(entry); }
  bool remove_export(const std::string& path) override { return path == "/a"; }
  void set_draining(bool draining) override { draining_ = draining; }
  bool draining() const override { return draining_; }
  bool close_connection(std::uint32_t reactor, std::uint32_t connection) override {
    if (reactor != 0 || connection != 3) return false;
    ++closed;
    return true;
  }
  bool trace_connection(std::uint32_t reactor, std::uint32_t connection, bool on) override {
    if (reactor != 0 || connection != 3) return false;
    traced = on;
    return true;
  }

  std::string defects;
  std::string log_level;
  std::vector<segment::ExportConfig> exports;
  int closed = 0;
  std::optional<bool> traced;

 private:
  bool draining_ = false;
};

class Changes : public ::testing::Test {
 protected:
  Changes() {
    add_changes(registry, operations, segment.layout(), config);
    add_trace(registry, operations, segment.layout(), config);
  }
  json ask(const std::string& method, const json& parameters = json::object()) {
    const json request = {{"jsonrpc", "2.0"}, {"id", 1}, {"method", method}, {"params", parameters}};
    std::string late;
    const std::string at_once = registry.answer(request.dump(), Access::Change, {}, [&late] {
      return [&late](const std::string& line) { late = line; };
    });
    return json::parse(late.empty() ? at_once : late);
  }
  json result(const std::string& method, const json& parameters = json::object()) {
    return ask(method, parameters)["result"];
  }
  std::string error(const std::string& method, const json& parameters = json::object()) {
    const json answer = ask(method, parameters);
    return answer.contains("error") ? answer["error"]["message"].get<std::string>() : "";
  }

  lab::TestSegment segment{"changes"};
  config::Config config = lab::configuration();
  FakeOperations operations;
  Registry registry;
};

TEST_F(Changes, a_reload_says_what_is_in_force_and_what_needs_a_restart) {
  EXPECT_EQ(result("config_reload"), (json{{"in_force", {"log_level"}},
                                           {"restart_control_plane", json::array()},
                                           {"restart_both_planes", {"transport.credits"}}}));
  operations.defects = "f:3: defect\n";
  EXPECT_NE(error("config_reload").find("f:3: defect"), std::string::npos);
}

TEST_F(Changes, an_export_is_checked_as_in_the_file) {
  EXPECT_EQ(result("export_add", {{"path", "/b"}, {"read_only", true}}),
            (json{{"path", "/b"}, {"saved", false}}));
  ASSERT_EQ(operations.exports.size(), 1u);
  EXPECT_STREQ(operations.exports[0].path, "/b");
  EXPECT_EQ(operations.exports[0].read_only, 1u);
  EXPECT_NE(error("export_add", {{"path", "/c"}, {"read_only", 3}}).find("true or false"), std::string::npos);
  EXPECT_NE(error("export_add", {{"path", "/c"}, {"x]\n[admin", 3}}).find("no key"), std::string::npos);
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
  EXPECT_EQ(result("drain_start"), (json{{"draining", true}, {"connections", 0}}));
  EXPECT_EQ(result("drain_status")["draining"], true);
  EXPECT_EQ(result("drain_stop")["draining"], false);
}

TEST_F(Changes, a_command_needs_a_connection_that_exists) {
  EXPECT_EQ(result("connection_close", {{"reactor", 0}, {"connection", 3}}), (json{{"closing", true}}));
  EXPECT_EQ(operations.closed, 1);
  EXPECT_NE(error("connection_close", {{"reactor", 0}, {"connection", 4}}).find("There is no connection 4"),
            std::string::npos);
  EXPECT_NE(error("connection_close", {{"reactor", 0}}).find("connection is needed"), std::string::npos);
  EXPECT_NE(error("connection_close", {{"reactor", -1}, {"connection", 3}}).find("reactor is needed"),
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
  const json read = result("trace_read", {{"reactor", 0}, {"connection", 3}, {"from", 1}});
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
