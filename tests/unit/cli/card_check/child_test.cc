// SPDX-License-Identifier: Apache-2.0
//
// Child processes end at their deadline, and what has happened to them is the result of their test.
#include "cli/card_check/child.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "cli/card_check/sysfs.h"

namespace sluice::card_check {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using How = Ended::How;

Ended shell(const std::string& script, milliseconds limit = seconds(60)) {
  return run_process({"sh", "-c", script}, limit);
}

std::string failures_of(const Result& result) {
  return result.diagnostics.contains("failures") ? result.diagnostics.at("failures").dump() : "";
}

TEST(ChildProcess, returns_messages_errors_and_status) {
  const Ended ended = shell("echo message >&3; echo error >&2; echo output; exit 7");
  EXPECT_EQ(ended.how, How::Exited);
  EXPECT_EQ(ended.code, 7);
  EXPECT_EQ(ended.messages, "message\n");
  EXPECT_EQ(ended.errors, "error\noutput\n");
}

TEST(ChildProcess, that_a_signal_ends_is_reported_by_the_name_of_the_signal) {
  const Ended ended = shell("kill -SEGV $$");
  EXPECT_EQ(ended.how, How::Signaled);
  EXPECT_EQ(ended.code, SIGSEGV);
  EXPECT_EQ(describe(ended), "was ended by signal SIGSEGV");
}

TEST(ChildProcess, that_does_not_end_is_killed_at_its_deadline) {
  EXPECT_EQ(shell("exec sleep 1000", milliseconds(50)).how, How::TimedOut);
  EXPECT_EQ(shell("exec 2>&- 1>&- 3>&-; exec sleep 1000", milliseconds(50)).how, How::TimedOut);
}

TEST(ChildProcess, that_does_not_exist_exits_with_127) {
  const Ended ended = run_process({"/nonexistent/program"}, seconds(60));
  EXPECT_EQ(ended.how, How::Exited);
  EXPECT_EQ(ended.code, 127);
}

TEST(ChildProcess, of_endless_output_is_cut) {
  const Ended ended = shell("head -c 3000000 /dev/zero >&3");
  EXPECT_EQ(ended.messages.size(), kMaxOutputBytes);
}

TEST(ResultOfAChild, is_that_of_its_last_message) {
  EXPECT_EQ(result_of("x", shell("echo '{\"done\":\"passed\"}' >&3")).outcome, Result::Outcome::Passed);
  const Result skipped = result_of("x", shell("echo '{\"skip\":\"none\"}\n{\"done\":\"skipped\"}' >&3"));
  EXPECT_EQ(skipped.outcome, Result::Outcome::Skipped);
  EXPECT_EQ(skipped.reason, "none");
  const Result failed =
      result_of("x", shell("echo '{\"failure\":\"a.cc:1: wrong\"}\n{\"done\":\"failed\"}' >&3; exit 1"));
  EXPECT_EQ(failed.outcome, Result::Outcome::Failed);
  EXPECT_EQ(failures_of(failed), "[\"a.cc:1: wrong\"]");
}

TEST(ResultOfAChild, that_ended_too_early_is_a_failure_with_its_end) {
  for (const char* const script :
       {"exit 0", "kill -SEGV $$", "echo '{\"done\":\"passed\"}' >&3; kill -ABRT $$",
        "echo '{\"done\":\"passed\"}' >&3; exit 3", "echo 'no JSON' >&3", "echo '[]' >&3"})
    EXPECT_EQ(result_of("x", shell(script)).outcome, Result::Outcome::Failed) << script;
  EXPECT_NE(failures_of(result_of("x", shell("kill -SEGV $$"))).find("SIGSEGV"), std::string::npos);
}

TEST(HardwareCounters, that_have_changed_are_shown_with_their_difference) {
  const std::string folder = testing::TempDir() + "/hw_counters-" + std::to_string(::getpid());
  std::filesystem::create_directory(folder);
  std::ofstream(folder + "/out_of_sequence") << 5;
  std::ofstream(folder + "/rnr_nak") << 1;
  std::ofstream(folder + "/text") << "none";
  const Counters before = read_counters(folder);
  std::ofstream(folder + "/out_of_sequence") << 9;
  EXPECT_EQ(differences(before, read_counters(folder)), (Json{{"out_of_sequence", 4}}));
  EXPECT_TRUE(read_counters(folder + "/absent").empty());
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace sluice::card_check
