// SPDX-License-Identifier: Apache-2.0
//
// Compares each method's answer with its declaration, on a segment with at least one entry of each kind.
#include "controlplane/admin/declarations/declarations.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "controlplane/admin/methods.h"
#include "controlplane/admin/registry.h"
#include "controlplane/admin/views/connections.h"
#include "controlplane/admin/views/reactors.h"
#include "controlplane/admin/views/status.h"
#include "controlplane/events/kinds.h"
#include "controlplane/policy/client_monitor.h"
#include "controlplane/statistics.h"
#include "controlplane/topology.h"
#include "dataplane/segment/channels.h"
#include "tests/unit/controlplane/admin/fake_operations.h"
#include "tests/unit/controlplane/lab.h"

namespace sluice::admin {
namespace {

const char* const kConfiguration = R"(
[[client_class]]
name = "few"
clients = ["192.0.2.77/32"]
[[export]]
path = "/a"
)";

class Declarations : public ::testing::Test {
 protected:
  Declarations() {
    add_capture(registry_, segment_.layout(), socket_);
    add_changes(registry_, operations_, segment_.layout(), config_);
    add_events(registry_, journal_);
    add_segment_views(registry_, segment_.layout(), config_, {pace_, work_});
    add_slow_calls(registry_, segment_.layout(), config_);
    add_trace(registry_, operations_, segment_.layout(), config_);
    add_views_of_the_control_plane();
    fill();
  }
  segment::Layout& layout() { return segment_.layout(); }

  /// Adds the methods that require a whole control plane, with the views to which they delegate.
  void add_views_of_the_control_plane() {
    registry_.add(declared("status"), [this](const Json&) {
      Json shown =
          status(layout(), config_,
                 {.admission = admission_, .pending = pending_, .pending_control = pending_control_});
      shown["events"] = to_json(controlplane::EventCounts{});
      shown["admin"] = {{"clients_cut_off", 0}, {"requests_queued", 0}};
      return shown;
    });
    registry_.add_later(declared("credits"), [this](const Json&, const Answer& answer) {
      answer_credits(work_, answer, {layout(), config_, credits_, lab::kSecondNs});
    });
    registry_.add(declared("busiest"), [this](const Json& parameters) {
      policy::RoundSums sums;
      sums.add_open(7, 1);
      sums.add_busy({.peer = lab::client(10), .granted = 7, .busy = 1, .calls = 5});
      return busiest(sums.end(lab::kSecondNs), config_, parameters.at("count").get<std::uint32_t>());
    });
    registry_.add(declared("version"), [](const Json&) { return version(); });
    registry_.add(declared("topology"),
                  [this](const Json&) { return topology(topology::describe(), reactor_cpus(layout(), 1)); });
    registry_.add(declared("config_check"), [this](const Json& parameters) {
      return check_configuration(parameters.at("text").get<std::string>(),
                                 parameters.at("name").get<std::string>(), config_, {});
    });
  }

  void fill() {
    segment_.publish(2, lab::client(10), 0, 7);
    segment_.publish(3, lab::client(77), 1, 3, segment::ConnectionState::Open, "host.example");
    segment::ReactorArea& area = layout().reactors[0];
    auto info = *area.connections[3].read();
    info.version = 2;
    info.heard_properties = 1;
    info.peer_pid = 7;
    area.connections[3].write(info);
    area.use[3].busy = 1;
    area.use[3].oldest_state = 5;
    area.use[3].held_bytes = 4096;
    for (auto& of_class : area.transport_counters)
      for (auto& counter : of_class) counter = 3;
    area.info.write({.state = segment::ReactorState::Running});
    area.calls.info[0] = {.program = 100003, .version = 3, .procedure = 6};
    area.calls.use[0][0].calls[0] = 1;
    area.calls.procedures = 1;
    segment::TraceRecord call{.connection = 3, .xid = 1};
    call.state_ns.fill(1000);
    area.trace.add(call);
    layout().slow_calls[0].add({.number = 0, .upstream_ns = 1, .peer = lab::client(10), .call = call});
    segment::ExportInfo shared{.in_use = 1};
    std::strcpy(shared.path, "/a");
    shared.procedure_calls[6] = 1;
    layout().exports[0].write(shared);
    config_.block.upstream_count = 1;
    std::strcpy(config_.block.upstreams[0].name, "filer");
    segment::start_heartbeat(layout().data_plane, segment::monotonic_ns(), segment::wall_ns());
    journal_.add(events::ConnectionRefused{.peer = "192.0.2.9", .reason = "too_fast"});
  }

  Json ask(const std::string& method, const Json& parameters = Json::object(), int passed = -1) {
    const Json request = {{"jsonrpc", "2.0"}, {"id", 1}, {"method", method}, {"params", parameters}};
    std::string late;
    pace_.begin_iteration();
    const std::string at_once =
        registry_.answer(request.dump(), Access::Change, FileDescriptor(passed >= 0 ? ::dup(passed) : -1),
                         [&late] { return [&late](const std::string& line) { late = line; }; });
    while (work_.pending()) work_.run();
    return Json::parse(late.empty() ? at_once : late);
  }
  /// Returns the result after a check against its declaration.
  Json result(const std::string& method, const Json& parameters = Json::object(), int passed = -1) {
    Json answer = ask(method, parameters, passed);
    EXPECT_TRUE(answer.contains("result")) << method << ": " << answer;
    EXPECT_EQ(mismatch(declared(method).result, answer["result"]), "") << method;
    asked_.insert(method);
    return answer["result"];
  }

  const std::string socket_ = "/dev/shm/sluice-declarations-" + std::to_string(::getpid());
  lab::TestSegment segment_{"declarations"};
  config::Config config_ = lab::configuration(kConfiguration);
  policy::Admission admission_{{.max_connections = 4}};
  const std::vector<std::string> pending_ = {"transport.credits"};
  const std::vector<std::string> pending_control_ = {"mount.port"};
  FakeOperations operations_;
  events::Journal journal_{[](const events::Event&) {}};
  const policy::CreditController credits_{segment_.layout(), config_.credit_settings()};
  Pace pace_;
  PacedWork work_;
  Registry registry_;
  std::set<std::string> asked_;
};

TEST_F(Declarations, every_result_is_as_it_is_declared) {
  segment::CaptureInbox inbox(socket_, ::geteuid());
  int pipe[2];
  ASSERT_EQ(::pipe2(pipe, O_CLOEXEC), 0);
  result("capture_start", Json::object(), pipe[1]);
  result("capture_stop");
  for (const int end : pipe) ::close(end);
  const Json connection = {{"reactor", 0}, {"connection", 3}};
  const std::map<std::string, Json> with_parameters = {{"config_check", {{"text", kConfiguration}}},
                                                       {"connection_close", connection},
                                                       {"connection_show", connection},
                                                       {"export_add", {{"path", "/b"}}},
                                                       {"export_remove", {{"path", "/a"}}},
                                                       {"log_level", {{"level", "warn"}}},
                                                       {"trace_read", connection},
                                                       {"trace_start", connection},
                                                       {"trace_stop", connection}};
  for (const Chapter& chapter : chapters())
    for (const Declaration& method : chapter.methods) {
      if (asked_.count(method.name) != 0) continue;
      const auto parameters = with_parameters.find(method.name);
      const Json shown =
          result(method.name, parameters == with_parameters.end() ? Json::object() : parameters->second);
      EXPECT_FALSE(shown.is_array() && shown.empty()) << method.name << " has nothing to be held against";
    }
  EXPECT_EQ(asked_.size(), registry_.declarations().size()) << "a method that no chapter has";
}

TEST_F(Declarations, results_that_have_several_forms_are_as_declared_in_each) {
  EXPECT_EQ(result("reverse"), Json::object());
  config_.block.reverse.in_use = 1;
  EXPECT_EQ(result("reverse")["state"], "idle");
  EXPECT_EQ(result("config_check", {{"text", "nonsense"}})["ok"], false);
  EXPECT_EQ(result("capture_status")["state"], "none");
  for (const auto state :
       {segment::CaptureState::Running, segment::CaptureState::Done, segment::CaptureState::Failed}) {
    layout().capture_status.write({.id = 9, .state = state});
    EXPECT_EQ(result("capture_status")["id"], 9);
  }
  layout().data_plane.pid = 0;
  EXPECT_FALSE(result("status")["data_plane"].contains("uptime_s"));
  EXPECT_TRUE(result("connection_show", {{"reactor", 0}, {"connection", 2}})["oldest_call"].is_null());
  config_.block.driver = segment::Driver::Verbs;
  EXPECT_EQ(result("devices")["polled"][0]["driver"], "verbs");
  config_.block.driver = segment::Driver::Loopback;
  EXPECT_TRUE(result("devices")["polled"].empty());
}

void check_names(const Field& field, const std::string& where) {
  for (const Field& part : field.parts) {
    const bool element = field.type == Type::List || field.type == Type::Map;
    EXPECT_EQ(part.name.empty(), element) << where;
    EXPECT_EQ(part.name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_"), std::string::npos)
        << where << '.' << part.name;
    EXPECT_TRUE(element || !part.meaning.empty()) << where << '.' << part.name;
    check_names(part, where + '.' + part.name);
  }
}

TEST_F(Declarations, names_are_words_and_sentences_are_sentences) {
  std::set<std::string> names;
  for (const Chapter& chapter : chapters())
    for (const Declaration& method : chapter.methods) {
      EXPECT_TRUE(names.insert(method.name).second) << method.name << " is declared twice";
      EXPECT_TRUE(method.summary.ends_with(".")) << method.name;
      for (const std::string& error : method.errors) EXPECT_TRUE(error.ends_with(".")) << method.name;
      check_names(object("", "", method.parameters), method.name);
      check_names(method.result, method.name);
    }
  EXPECT_THROW(declared("nonsense"), std::logic_error);
}

TEST_F(Declarations, every_default_is_a_value_that_may_be_given) {
  for (const Chapter& chapter : chapters())
    for (const Declaration& method : chapter.methods)
      for (const Field& parameter : method.parameters) {
        if (parameter.by_default.is_null()) continue;
        EXPECT_EQ(mismatch(parameter, parameter.by_default, method.name + '.' + parameter.name), "");
      }
}

TEST_F(Declarations, are_printed_as_json_schemas) {
  const Json methods = Json::parse(schemas());
  const auto removal = std::find_if(methods.begin(), methods.end(),
                                    [](const Json& one) { return one["name"] == "export_remove"; });
  ASSERT_NE(removal, methods.end());
  EXPECT_EQ((*removal)["params"][1]["name"], "save");
  EXPECT_EQ((*removal)["params"][1]["required"], false);
  EXPECT_EQ((*removal)["params"][1]["schema"]["default"], false);
  EXPECT_EQ((*removal)["result"]["type"], "object");
}

}  // namespace
}  // namespace sluice::admin
