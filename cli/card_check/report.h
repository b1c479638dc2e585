// SPDX-License-Identifier: Apache-2.0
//
// The report of one run: facts about the card and the machine, and a result for each test. It is written as
// TAP 14 (testanything.org) or as JSON, and both are read again. In TAP, each section of facts is a comment,
// and each diagnostic is a line of a YAML block whose value is JSON, which YAML 1.2 includes.
#pragma once

#include <cstddef>
#include <iosfwd>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "controlplane/json/json.h"

namespace sluice::card_check {

struct Result {
  enum class Outcome : unsigned char { Passed, Failed, Skipped };
  std::string name;
  Outcome outcome = Outcome::Failed;
  std::string reason;  ///< why the test was skipped
  Json diagnostics;    ///< object, or null
};

struct Report {
  Json facts;  ///< object of sections
  std::vector<Result> results;

  std::size_t count(Result::Outcome outcome) const {
    std::size_t found = 0;
    for (const Result& result : results) found += result.outcome == outcome ? 1 : 0;
    return found;
  }
};

/// The file is no report, or a part of one. what() is a sentence.
class ReportError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Writes the version, the plan and the facts.
void write_tap_start(std::ostream& out, const Json& facts, std::size_t tests);
/// Writes one result; `number` counts from 1.
void write_tap_result(std::ostream& out, std::size_t number, const Result& result);
/// Writes the last line, without which a report is incomplete.
void write_tap_end(std::ostream& out, const Report& report, double seconds);
void write_json(std::ostream& out, const Report& report, double seconds);

inline constexpr std::size_t kMaxReportBytes = 4u << 20;

/// Parses a report of either form. Throws ReportError.
Report parse_report(std::string_view text);
/// Reads and parses a file of at most kMaxReportBytes. Throws ReportError.
Report read_report(const std::string& path);

}  // namespace sluice::card_check
