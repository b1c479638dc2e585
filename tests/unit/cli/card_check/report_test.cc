// SPDX-License-Identifier: Apache-2.0
//
// Reports are read as they were written, and files that are cut or foreign are refused with a sentence.
#include "cli/card_check/report.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "cli/card_check/explain.h"

namespace sluice::card_check {
namespace {

using Outcome = Result::Outcome;

Report sample() {
  Report report;
  report.facts = {{"system", {{"kernel", "6.1.0"}, {"packages", nullptr}}},
                  {"provider",
                   {{"name", "mlx5"},
                    {"deviation", ""},
                    {"extended_posting", true},
                    {"extended_polling", true},
                    {"max_posted_reads", 0}}},
                  {"gids", Json::array({Json{{"index", 0}, {"address", "<0123456789abcdef>"}}})}};
  report.results = {
      {"static: Static.windows_are_what_the_flags_say", Outcome::Passed, "", {{"windows", "yes"}}},
      {"loopback: Loopback.reads/classic", Outcome::Passed, "", {{"measured_read_pieces", "16"}}},
      {"loopback: a name with # and \\ in it",
       Outcome::Failed,
       "",
       {{"failures", Json::array({Json("line one\nline two"), Json("\"quoted\" # and \xC3\xA9")})},
        {"hw_counters", {{"out_of_sequence", 3}}}}},
      {"loopback: DriverTest.x/extended", Outcome::Skipped, "the provider has none # of it", {}}};
  return report;
}

std::string tap_of(const Report& report) {
  std::ostringstream out;
  write_tap_start(out, report.facts, report.results.size());
  for (std::size_t i = 0; i < report.results.size(); ++i) write_tap_result(out, i + 1, report.results[i]);
  write_tap_end(out, report, 12.5);
  return out.str();
}

std::string json_of(const Report& report) {
  std::ostringstream out;
  write_json(out, report, 12.5);
  return out.str();
}

void expect_equal(const Report& one, const Report& other) {
  EXPECT_EQ(one.facts, other.facts);
  ASSERT_EQ(one.results.size(), other.results.size());
  for (std::size_t i = 0; i < one.results.size(); ++i) {
    EXPECT_EQ(one.results[i].name, other.results[i].name);
    EXPECT_EQ(one.results[i].outcome, other.results[i].outcome);
    EXPECT_EQ(one.results[i].reason, other.results[i].reason);
    EXPECT_EQ(one.results[i].diagnostics, other.results[i].diagnostics) << one.results[i].name;
  }
}

std::string refusal_of(const std::string& text) {
  try {
    parse_report(text);
    return {};
  } catch (const ReportError& error) {
    return error.what();
  }
}

TEST(CardReport, is_read_as_it_was_written_in_both_forms) {
  expect_equal(parse_report(tap_of(sample())), sample());
  expect_equal(parse_report(json_of(sample())), sample());
}

TEST(CardReport, with_line_ends_of_a_mail_program_is_read) {
  std::string mailed;
  for (const char c : tap_of(sample())) mailed += c == '\n' ? std::string("\r\n") : std::string(1, c);
  expect_equal(parse_report(mailed), sample());
}

TEST(CardReport, of_which_a_part_is_missing_is_refused_at_every_length) {
  for (const std::string& whole : {tap_of(sample()), json_of(sample())})
    for (std::size_t bytes = 0; bytes + 1 < whole.size(); ++bytes) {
      const std::string sentence = refusal_of(whole.substr(0, bytes));
      ASSERT_NE(sentence, "") << bytes << " of " << whole.size();
      ASSERT_EQ(sentence.back(), '.');
    }
}

TEST(CardReport, without_a_line_in_the_middle_is_refused) {
  const std::string whole = tap_of(sample());
  std::size_t refused = 0;
  for (std::size_t at = 0; at < whole.size();) {
    const std::size_t end = whole.find('\n', at) + 1;
    const std::string line = whole.substr(at, end - at);
    const bool result = line.starts_with("ok ") || line.starts_with("not ok ");
    if (result) {
      EXPECT_NE(refusal_of(whole.substr(0, at) + whole.substr(end)), "") << line;
      ++refused;
    }
    at = end;
  }
  EXPECT_EQ(refused, sample().results.size());
}

TEST(CardReport, that_is_another_file_is_refused) {
  const std::string many(2000, '[');
  for (const std::string& text :
       {std::string(), std::string("\0\1\2", 3), std::string("TAP version 13\n1..0\n"), std::string("{}"),
        std::string("{\"program\": 3}"), std::string("{\"program\": \"sluice-card-check\"}"),
        std::string("{\"program\":\"sluice-card-check\",\"facts\":{},\"results\":3,\"end\":{\"tests\":0}}"),
        std::string(
            "{\"program\":\"sluice-card-check\",\"facts\":{},\"results\":[{}],\"end\":{\"tests\":1}}"),
        std::string("TAP version 14\n1..99999999999999999999999\n# end: {\"tests\":1}\n"),
        std::string("TAP version 14\n1..0\n# end: 3\n"),
        std::string("TAP version 14\n1..0\n# end: {\"tests\":\"\"}\n"),
        std::string("\x7F"
                    "ELF"),
        "{\"program\":" + many})
    EXPECT_NE(refusal_of(text), "") << text.substr(0, 60);
}

TEST(CardReport, with_changed_bytes_is_read_or_refused) {
  const std::string whole = tap_of(sample());
  for (std::size_t at = 0; at < whole.size(); ++at)
    for (const char byte : {'\0', '\n', '{', '"', '9', '\xFF'}) {
      std::string changed = whole;
      changed[at] = byte;
      try {
        std::ostringstream out;
        explain(out, parse_report(changed));
        EXPECT_NE(out.str(), "");
      } catch (const ReportError& error) {
        EXPECT_NE(std::string(error.what()), "");
      }
    }
}

TEST(CardReport, that_is_no_regular_file_or_too_long_is_refused) {
  const std::string folder = testing::TempDir() + "/card-report-" + std::to_string(::getpid());
  std::filesystem::create_directory(folder);
  ASSERT_EQ(::mkfifo((folder + "/pipe").c_str(), 0600), 0);
  std::ofstream(folder + "/long") << std::string(kMaxReportBytes + 1, ' ');
  std::ofstream(folder + "/good") << tap_of(sample());
  for (const char* const name : {"", "/pipe", "/long", "/absent"})
    EXPECT_THROW(read_report(folder + name), ReportError) << name;
  EXPECT_THROW(read_report("/dev/zero"), ReportError);
  expect_equal(read_report(folder + "/good"), sample());
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace sluice::card_check
