// SPDX-License-Identifier: Apache-2.0
#include "cli/card_check/child.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <string_view>

#include "cli/card_check/subject.h"

namespace sluice::card_check {
namespace {

/// First argument of a child; the second one is its task as JSON.
constexpr const char* kChild = "--child";
constexpr std::size_t kMaxFailures = 20;
constexpr std::size_t kMaxTextBytes = 4000;

void send(const Json& message) {
  const std::string line = message.dump(-1, Json::Encoding::Ascii) + '\n';
  for (std::size_t sent = 0; sent < line.size();) {
    const ssize_t count = ::write(kMessageDescriptor, line.data() + sent, line.size() - sent);
    if (count < 0 && errno != EINTR) return;
    if (count > 0) sent += static_cast<std::size_t>(count);
  }
}

std::string shortened(std::string_view text) {
  return std::string(text.substr(0, kMaxTextBytes));
}

/// Returns the name of the file without its folders.
std::string place_of(const testing::TestPartResult& part) {
  const std::string_view file = part.file_name() != nullptr ? part.file_name() : "";
  return std::string(file.substr(file.rfind('/') + 1)) + ":" + std::to_string(part.line_number());
}

class Sender final : public testing::EmptyTestEventListener {
 public:
  void OnTestPartResult(const testing::TestPartResult& part) override {
    if (part.skipped()) send({{"skip", shortened(part.message())}});
    if (part.failed() && ++failures_ <= kMaxFailures)
      send({{"failure", place_of(part) + ": " + shortened(part.message())}});
  }
  void OnTestEnd(const testing::TestInfo& test) override {
    const testing::TestResult& result = *test.result();
    for (int i = 0; i < result.test_property_count(); ++i)
      send({{"property", result.GetTestProperty(i).key()},
            {"value", shortened(result.GetTestProperty(i).value())}});
    send({{"done", result.Failed() ? "failed" : result.Skipped() ? "skipped" : "passed"}});
  }

 private:
  std::size_t failures_ = 0;
};

int run_linked_test(const std::string& name) {
  testing::InitGoogleTest();
  GTEST_FLAG_SET(filter, name);
  testing::TestEventListeners& listeners = testing::UnitTest::GetInstance()->listeners();
  delete listeners.Release(listeners.default_result_printer());
  listeners.Append(new Sender);  // owned by GoogleTest
  return RUN_ALL_TESTS();
}

std::optional<std::uint32_t> optional_number(const Json& object, const char* name) {
  const Json* const value = object.find(name);
  return value != nullptr ? std::optional(value->get<std::uint32_t>()) : std::nullopt;
}

}  // namespace

std::vector<std::string> linked_tests() {
  testing::InitGoogleTest();  // instantiates tests with parameters
  std::vector<std::string> names;
  const testing::UnitTest& all = *testing::UnitTest::GetInstance();
  for (int s = 0; s < all.total_test_suite_count(); ++s) {
    const testing::TestSuite& suite = *all.GetTestSuite(s);
    if (std::string_view(suite.name()) == "GoogleTestVerification") continue;
    for (int t = 0; t < suite.total_test_count(); ++t)
      names.push_back(std::string(suite.name()) + "." + suite.GetTestInfo(t)->name());
  }
  return names;
}

Ended run_child(const Task& task, std::chrono::milliseconds limit) {
  Json arguments = {{"test", task.test}, {"device", task.choice.device}, {"port", task.choice.port}};
  if (task.choice.gid) arguments["gid"] = *task.choice.gid;
  if (task.peer_gid) arguments["peer_gid"] = *task.peer_gid;
  return run_process({"/proc/self/exe", kChild, arguments.dump()}, limit);
}

std::optional<int> run_as_child(int argc, char** argv) {
  if (argc != 3 || std::string_view(argv[1]) != kChild) return std::nullopt;
  const std::optional<Json> arguments = Json::try_parse(argv[2]);
  if (!arguments || !arguments->is_object()) return 1;
  const Choice choice{.device = arguments->at("device").get<std::string>(),
                      .port = arguments->at("port").get<std::uint32_t>(),
                      .gid = optional_number(*arguments, "gid")};
  const auto test = arguments->at("test").get<std::string>();
  if (test.empty()) return send(to_json(collect_facts(choice))), 0;
  subject() = {.device = choice.device,
               .port = static_cast<std::uint8_t>(choice.port),
               .left_gid = choice.gid,
               .right_gid = optional_number(*arguments, "peer_gid")};
  return run_linked_test(test);
}

Result result_of(const std::string& name, const Ended& ended) {
  Result result{
      .name = name, .outcome = Result::Outcome::Failed, .reason = {}, .diagnostics = Json::object()};
  Json failures = Json::array();
  std::optional<std::string> done;
  for (std::string_view rest = ended.messages; !rest.empty();) {
    const std::size_t end = rest.find('\n');
    const std::optional<Json> message = Json::try_parse(rest.substr(0, end));
    rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
    if (!message || !message->is_object()) continue;
    if (message->contains("failure")) failures.push_back(message->at("failure"));
    if (message->contains("skip")) result.reason = message->at("skip").get<std::string>();
    if (message->contains("property"))
      result.diagnostics[message->at("property").get<std::string>()] = message->at("value");
    if (message->contains("done")) done = message->at("done").get<std::string>();
  }
  const bool exited = ended.how == Ended::How::Exited;
  if (done == "passed" && exited && ended.code == 0) result.outcome = Result::Outcome::Passed;
  if (done == "skipped" && exited && ended.code == 0) result.outcome = Result::Outcome::Skipped;
  if (result.outcome != Result::Outcome::Failed) return result;
  result.reason.clear();
  if (!done || !exited) failures.push_back("The process of the test " + describe(ended) + ".");
  result.diagnostics["failures"] = failures;
  if (!ended.errors.empty()) result.diagnostics["output"] = shortened(ended.errors);
  result.diagnostics["seconds"] = ended.seconds;
  return result;
}

}  // namespace sluice::card_check
