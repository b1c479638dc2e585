// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <optional>

#include "cli/card_check/report.h"
#include "dataplane/base/file_descriptor.h"

namespace sluice::card_check {
namespace {

using Outcome = Result::Outcome;

constexpr std::string_view kVersionLine = "TAP version 14";

[[noreturn]] void foreign() {
  throw ReportError(
      "The file is not a report of sluice-card-check. Name its output, in TAP or made with --json.");
}
[[noreturn]] void cut(const std::string& why) {
  throw ReportError("The report is incomplete: " + why + ". Send the whole output of sluice-card-check.");
}

/// Returns the next line without its end, and removes it from the text.
std::string_view take_line(std::string_view& text) {
  const std::size_t end = text.find('\n');
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  return line.ends_with('\r') ? line.substr(0, line.size() - 1) : line;
}

bool take_prefix(std::string_view& line, std::string_view prefix) {
  if (!line.starts_with(prefix)) return false;
  line.remove_prefix(prefix.size());
  return true;
}

std::optional<std::size_t> take_number(std::string_view& line) {
  std::size_t number = 0;
  const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), number);
  if (error != std::errc{}) return std::nullopt;
  line.remove_prefix(static_cast<std::size_t>(end - line.data()));
  return number;
}

/// Parses "name: JSON".
std::optional<std::pair<std::string, Json>> named_value(std::string_view line) {
  const std::size_t colon = line.find(": ");
  if (colon == std::string_view::npos) return std::nullopt;
  std::optional<Json> value = Json::try_parse(line.substr(colon + 2));
  if (!value) return std::nullopt;
  return std::pair(std::string(line.substr(0, colon)), std::move(*value));
}

std::string unescaped(std::string_view text) {
  std::string plain;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 1 < text.size()) ++i;
    plain += text[i];
  }
  return plain;
}

/// Parser of the TAP that report_writer.cc writes.
class TapParser {
 public:
  explicit TapParser(std::string_view text) : text_(text) {}

  Report parse() {
    if (take_line(text_) != kVersionLine) foreign();
    std::string_view plan = take_line(text_);
    if (!take_prefix(plan, "1..")) cut("it has no plan");
    const auto announced = take_number(plan);
    if (!announced || !plan.empty()) foreign();
    report_.facts = Json::object();
    while (!text_.empty()) take(take_line(text_));
    if (in_block_) cut("its last diagnostics do not end");
    if (!end_)
      cut("it has " + std::to_string(report_.results.size()) + " of " + std::to_string(*announced) +
          " results, and its last line is missing");
    if (report_.results.size() != *announced || *announced != end_->at("tests").get<std::size_t>())
      cut("it has " + std::to_string(report_.results.size()) + " of " + std::to_string(*announced) +
          " results");
    return std::move(report_);
  }

 private:
  void take(std::string_view line) {
    if (in_block_) return take_diagnostic(line);
    if (take_prefix(line, "# ")) return take_comment(line);
    if (line == "  ---" && !report_.results.empty()) {
      in_block_ = true;
      report_.results.back().diagnostics = Json::object();
      return;
    }
    const bool failed = take_prefix(line, "not ok ");
    if (!failed && !take_prefix(line, "ok ")) return;  // TAP ignores lines that it does not know
    const auto number = take_number(line);
    if (!number || *number != report_.results.size() + 1 || !take_prefix(line, " - "))
      cut("result " + std::to_string(report_.results.size() + 1) + " cannot be read");
    Result& result = report_.results.emplace_back();
    result.outcome = failed ? Outcome::Failed : Outcome::Passed;
    const std::size_t skip = line.find(" # SKIP ");
    result.name = unescaped(line.substr(0, skip));
    if (skip == std::string_view::npos) return;
    result.outcome = Outcome::Skipped;
    result.reason = unescaped(line.substr(skip + std::strlen(" # SKIP ")));
  }
  void take_diagnostic(std::string_view line) {
    if (line == "  ...") return void(in_block_ = false);
    auto value = take_prefix(line, "  ") ? named_value(line) : std::nullopt;
    if (!value) cut("a diagnostic of result " + std::to_string(report_.results.size()) + " cannot be read");
    report_.results.back().diagnostics[value->first] = std::move(value->second);
  }
  void take_comment(std::string_view line) {
    auto value = named_value(line);
    if (!value) return;
    if (value->first == "end")
      end_ = std::move(value->second);
    else if (report_.results.empty())
      report_.facts[value->first] = std::move(value->second);
  }

  std::string_view text_;
  Report report_;
  std::optional<Json> end_;
  bool in_block_ = false;
};

Outcome outcome_of(const std::string& name) {
  if (name == "passed") return Outcome::Passed;
  if (name == "failed") return Outcome::Failed;
  if (name == "skipped") return Outcome::Skipped;
  foreign();
}

Report parse_json(std::string_view text) {
  const std::optional<Json> document = Json::try_parse(text);
  if (!document) cut("it is not whole JSON");
  if (!document->is_object() || document->value("program", "") != "sluice-card-check") foreign();
  Report report;
  report.facts = document->at("facts");
  if (!report.facts.is_object()) foreign();
  for (const Json& one : document->at("results")) {
    Result& result = report.results.emplace_back();
    result.name = one.at("name").get<std::string>();
    result.outcome = outcome_of(one.at("outcome").get<std::string>());
    result.reason = one.value("reason", "");
    if (const Json* found = one.find("diagnostics"); found != nullptr) result.diagnostics = *found;
    if (!result.diagnostics.is_null() && !result.diagnostics.is_object()) foreign();
  }
  if (document->at("end").at("tests").get<std::size_t>() != report.results.size())
    cut("its number of results is not that of its end");
  return report;
}

}  // namespace

Report parse_report(std::string_view text) {
  try {
    if (text.starts_with("{")) return parse_json(text);
    if (text.empty() || !kVersionLine.starts_with(text.substr(0, kVersionLine.size()))) foreign();
    return TapParser(text).parse();
  } catch (const JsonError&) {
    foreign();
  }
}

Report read_report(const std::string& path) {
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat status {};
  if (!file || ::fstat(file.get(), &status) != 0)
    throw ReportError("Cannot read " + path + " (" + std::strerror(errno) + ").");
  if (!S_ISREG(status.st_mode))
    throw ReportError(path + " is not a regular file. Name the file of a report.");
  std::string text(kMaxReportBytes + 1, '\0');
  std::size_t size = 0;
  for (ssize_t count = 1; count != 0 && size < text.size();) {
    count = ::read(file.get(), text.data() + size, text.size() - size);
    if (count < 0 && errno != EINTR)
      throw ReportError("Cannot read " + path + " (" + std::strerror(errno) + ").");
    if (count > 0) size += static_cast<std::size_t>(count);
  }
  if (size > kMaxReportBytes)
    throw ReportError(path + " has more than " + std::to_string(kMaxReportBytes >> 20) +
                      " MiB, which no report of sluice-card-check has.");
  text.resize(size);
  return parse_report(text);
}

}  // namespace sluice::card_check
