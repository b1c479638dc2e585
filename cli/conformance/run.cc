// SPDX-License-Identifier: Apache-2.0
#include "cli/conformance/run.h"

#include <nlohmann/json.hpp>
#include <ostream>
#include <set>

namespace sluice::conformance {
namespace {

const char* to_string(Outcome outcome) {
  switch (outcome) {
    case Outcome::Passed:
      return "passed";
    case Outcome::Failed:
      return "failed";
    case Outcome::Unmet:
      return "unmet";
    case Outcome::Skipped:
      return "skipped";
  }
  return "?";
}

/// What one test has left in the file must not be held against the server in the next.
void restore_file(Link& link, const Target& target, const Limits& limits, std::uint32_t first_xid,
                  Result& result) {
  Trial trial(link, target, limits, first_xid);
  try {
    trial.connect();
    write_file(trial, target.file);
  } catch (const Failure& failure) {
    result.detail += std::string(" And the file cannot be restored: ") + failure.what();
  }
}

}  // namespace

Result run_test(const Test& test, Link& link, const Target& target, const Limits& limits, bool strict,
                std::uint32_t first_xid) {
  Result result{.test = &test, .detail = {}, .history = {}};
  Trial trial(link, target, limits, first_xid);
  try {
    if (test.needs != Needs::Nothing && target.root.empty())
      trial.skip("It needs an export: give --mount-port or --handle.");
    if (test.needs == Needs::File && target.file.empty())
      trial.skip("It needs a file, and the export cannot be written.");
    test.run(trial);
  } catch (const Skipped& why) {
    result.outcome = Outcome::Skipped;
    result.detail = why.what();
  } catch (const EndedAfterwards& failure) {
    result.outcome = strict ? Outcome::Failed : Outcome::Unmet;
    result.detail = failure.what();
  } catch (const Failure& failure) {
    result.outcome = test.level == Level::Must || strict ? Outcome::Failed : Outcome::Unmet;
    result.detail = failure.what();
  }
  result.history = trial.history();
  if (result.outcome != Outcome::Passed && test.needs == Needs::File && !target.file.empty())
    restore_file(link, target, limits, first_xid + kXidsOfATest / 2, result);
  return result;
}

void print_tap(std::ostream& out, std::size_t number, const Result& result) {
  const bool ok = result.outcome == Outcome::Passed || result.outcome == Outcome::Skipped;
  out << (ok ? "ok " : "not ok ") << number << ' ' << result.test->name;
  if (result.outcome == Outcome::Skipped) out << " # SKIP " << result.detail;
  if (result.outcome == Outcome::Unmet) out << " # TODO not met, and not a MUST";
  out << '\n';
  if (!ok) {
    out << "# asked: " << result.test->asks << "\n# " << result.detail << '\n';
    for (const std::string& line : result.history) out << "#   " << line << '\n';
  }
  out << std::flush;
}

void print_json(std::ostream& out, std::span<const Result> results) {
  nlohmann::json tests = nlohmann::json::array();
  std::set<std::string> rows;
  std::size_t counts[4] = {};
  for (const Result& result : results) {
    ++counts[static_cast<std::size_t>(result.outcome)];
    const auto own = rows_of(*result.test);
    if (result.outcome != Outcome::Skipped) rows.insert(own.begin(), own.end());
    tests.push_back({{"name", result.test->name},
                     {"rows", own},
                     {"level", to_string(result.test->level)},
                     {"asks", result.test->asks},
                     {"outcome", to_string(result.outcome)},
                     {"detail", result.detail},
                     {"seen", result.history}});
  }
  out << nlohmann::json{{"tests", tests},      {"rows", rows.size()}, {"passed", counts[0]},
                        {"failed", counts[1]}, {"unmet", counts[2]},  {"skipped", counts[3]}}
             .dump(1)
      << '\n';
}

std::size_t count_rows(std::span<const Test* const> tests) {
  std::set<std::string> rows;
  for (const Test* test : tests)
    for (const std::string& row : rows_of(*test)) rows.insert(row);
  return rows.size();
}

void print_list(std::ostream& out, std::span<const Test* const> tests) {
  for (const Test* test : tests)
    out << test->name << "\n    " << to_string(test->level) << ". " << test->asks << '\n';
  out << tests.size() << " tests of " << count_rows(tests) << " rows\n";
}

}  // namespace sluice::conformance
