// SPDX-License-Identifier: Apache-2.0
#include <ostream>

#include "cli/card_check/report.h"

namespace sluice::card_check {
namespace {

using Outcome = Result::Outcome;

/// Returns the text on one line, with the characters escaped that TAP interprets.
std::string escaped(std::string_view text) {
  std::string line;
  for (const char c : text) {
    if (c == '#' || c == '\\') line += '\\';
    line += static_cast<unsigned char>(c) < ' ' ? ' ' : c;
  }
  return line;
}

const char* name_of(Outcome outcome) {
  switch (outcome) {
    case Outcome::Passed:
      return "passed";
    case Outcome::Failed:
      return "failed";
    case Outcome::Skipped:
      break;
  }
  return "skipped";
}

Json summary_of(const Report& report, double seconds) {
  return {{"tests", report.results.size()},
          {"failed", report.count(Outcome::Failed)},
          {"skipped", report.count(Outcome::Skipped)},
          {"seconds", seconds}};
}

}  // namespace

void write_tap_start(std::ostream& out, const Json& facts, std::size_t tests) {
  out << "TAP version 14\n1.." << tests << '\n';
  for (const auto& [name, value] : facts.items())
    out << "# " << name << ": " << value.dump(-1, Json::Encoding::Ascii) << '\n';
}

void write_tap_result(std::ostream& out, std::size_t number, const Result& result) {
  out << (result.outcome == Outcome::Failed ? "not ok " : "ok ") << number << " - " << escaped(result.name);
  if (result.outcome == Outcome::Skipped) out << " # SKIP " << escaped(result.reason);
  out << '\n';
  if (result.diagnostics.empty()) return;
  out << "  ---\n";
  for (const auto& [name, value] : result.diagnostics.items())
    out << "  " << name << ": " << value.dump(-1, Json::Encoding::Ascii) << '\n';
  out << "  ...\n";
}

void write_tap_end(std::ostream& out, const Report& report, double seconds) {
  out << "# end: " << summary_of(report, seconds).dump() << '\n';
}

void write_json(std::ostream& out, const Report& report, double seconds) {
  Json results = Json::array();
  for (const Result& result : report.results) {
    Json one = {{"name", result.name}, {"outcome", name_of(result.outcome)}};
    if (!result.reason.empty()) one["reason"] = result.reason;
    if (!result.diagnostics.empty()) one["diagnostics"] = result.diagnostics;
    results.push_back(one);
  }
  const Json document = {{"program", "sluice-card-check"},
                         {"facts", report.facts},
                         {"results", results},
                         {"end", summary_of(report, seconds)}};
  out << document.dump(1, Json::Encoding::Ascii) << '\n';
}

}  // namespace sluice::card_check
