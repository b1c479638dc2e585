// SPDX-License-Identifier: Apache-2.0
#include "cli/card_check/explain.h"

#include <algorithm>
#include <ostream>
#include <string_view>

namespace sluice::card_check {
namespace {

using Outcome = Result::Outcome;
using Verdict = Role::Verdict;

/// A failed test whose deviation the driver avoids on every card.
struct Avoided {
  std::string_view test;  ///< part of its name
  const char* workaround;
};

constexpr Avoided kAvoided[] = {
    {"Static.windows_are_what_the_flags_say", "Windows are used as they were probed, not as the flags say."},
    {"Static.a_window_that_can_be_allocated",
     "Windows are not used, because they can be allocated and not bound."},
    {"Static.send_with_invalidate_ends", "Replies are sent without invalidation."},
    {"Static.a_completion_queue_has",
     "A completion queue that the device refuses is requested with fewer entries."},
    {"Static.extended_posting_has",
     "The classic interface is used, because functions of extended posting are missing."},
    {"Static.extended_polling_has",
     "The classic interface is used, because functions of extended polling are missing."},
    {"Loopback.reads_bring_every_byte", "An RDMA Read has at most max_sge_rd pieces."},
    {"SharedLoopback.the_last_receive", "The wait for the last shared Receive ends after a time limit."},
};

const Avoided* avoided(const Result& result) {
  for (const Avoided& row : kAvoided)
    if (result.name.find(row.test) != std::string::npos) return &row;
  return nullptr;
}

bool has_part(const Result& result, std::initializer_list<std::string_view> parts) {
  return std::any_of(parts.begin(), parts.end(),
                     [&](std::string_view part) { return result.name.find(part) != std::string::npos; });
}

bool flag_of(const Json& facts, const char* section, const char* name) {
  const Json* const found = facts.find(section);
  const Json* const value = found != nullptr && found->is_object() ? found->find(name) : nullptr;
  return value != nullptr && value->is_boolean() && value->get<bool>();
}

std::string text_of(const Json& facts, const char* section, const char* name) {
  const Json* const found = facts.find(section);
  const Json* const value = found != nullptr && found->is_object() ? found->find(name) : nullptr;
  if (value == nullptr || value->is_null()) return "unknown";
  return value->is_string() ? value->get<std::string>() : value->dump();
}

/// Returns a diagnostic with this name of any test, or an empty text.
std::string diagnostic(const Report& report, const char* name) {
  for (const Result& result : report.results) {
    if (!result.diagnostics.is_object()) continue;
    const Json* const value = result.diagnostics.find(name);
    if (value != nullptr && value->is_string()) return value->get<std::string>();
  }
  return {};
}

bool needs_windows(const Result& result) {
  return has_part(result, {"Windows.", "Refusal.", "window", "rkeys_differ", "send_with_invalidate"});
}

/// Returns whether the driver of Sluice uses on this card what the test is about.
bool is_used(const Report& report, const Result& result) {
  if (result.name.ends_with("/extended_polling"))
    return flag_of(report.facts, "provider", "extended_polling");
  if (result.name.ends_with("/extended") || result.name.ends_with("/extended_posting"))
    return flag_of(report.facts, "provider", "extended_posting");
  if (has_part(result, {"Windows.extended_polling"}))
    return flag_of(report.facts, "provider", "extended_polling");
  if (has_part(result, {"as_many_reads_as_the_send_queue"}))
    return text_of(report.facts, "provider", "max_posted_reads") == "0";
  // Regions stand in for windows that the card does not have.
  if (needs_windows(result))
    return (diagnostic(report, "windows") == "yes") != result.name.ends_with("/regions");
  return true;
}

std::size_t unavoided(const Report& report, bool of_windows) {
  return static_cast<std::size_t>(
      std::count_if(report.results.begin(), report.results.end(), [&](const Result& result) {
        return result.outcome == Outcome::Failed && avoided(result) == nullptr && is_used(report, result) &&
               needs_windows(result) == of_windows && !has_part(result, {"SharedReceives.", "/sharing"});
      }));
}

bool has_data_path(const Report& report) {
  return std::any_of(report.results.begin(), report.results.end(), [](const Result& result) {
    return result.outcome == Outcome::Passed && !has_part(result, {"static: "});
  });
}

bool has_regions(const Report& report) {
  return std::any_of(report.results.begin(), report.results.end(), [](const Result& result) {
    return result.outcome == Outcome::Passed && result.name.ends_with("/regions");
  });
}

Role role(const Report& report, const char* name, bool windows, const std::string& remark) {
  const std::size_t failed = unavoided(report, false) + (windows ? unavoided(report, true) : 0);
  if (failed > 0) return {name, Verdict::Fails, std::to_string(failed) + " tests failed that it depends on"};
  const std::string probed = diagnostic(report, "windows");
  if (windows && probed.empty())
    return {name, Verdict::Fails, "the report does not say whether the card has memory windows"};
  if (windows && probed != "yes")
    return {name, has_regions(report) ? Verdict::Works : Verdict::Expected,
            "only with window_less in [device], because the card has no memory windows"};
  return {name, has_data_path(report) ? Verdict::Works : Verdict::Expected, remark};
}

const char* text_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::Works:
      return "yes";
    case Verdict::Expected:
      return "expected, run --loopback";
    case Verdict::Fails:
      break;
  }
  return "no";
}

std::vector<std::string> limits_of(const Report& report) {
  std::vector<std::string> limits;
  constexpr std::pair<const char*, const char*> kMeasured[] = {
      {"measured_read_pieces", "pieces in an RDMA Read, measured"},
      {"measured_inline_bytes", "bytes of inline data"},
      {"measured_completions", "entries of a completion queue"},
      {"measured_work_requests", "work requests of a queue pair"},
      {"measured_shared_receives", "shared Receives"}};
  limits.push_back("pieces in an RDMA Read, used: " + text_of(report.facts, "attributes", "max_sge_rd"));
  for (const auto& [name, label] : kMeasured)
    if (const std::string value = diagnostic(report, name); !value.empty())
      limits.push_back(std::string(label) + ": " + value);
  limits.push_back("path MTU in bytes: " + text_of(report.facts, "port", "active_mtu_bytes"));
  return limits;
}

}  // namespace

std::vector<Role> roles_of(const Report& report) {
  const bool invalidates = diagnostic(report, "send_with_invalidate") == "yes";
  return {role(report, "server", false, ""), role(report, "gateway with TCP upstreams", false, ""),
          role(report, "RDMA upstreams", true, ""), role(report, "reverse gateway", true, ""),
          role(report, "version 2", false, invalidates ? "" : "without Send with Invalidate")};
}

std::vector<std::string> workarounds_of(const Report& report) {
  std::vector<std::string> active;
  const auto add = [&](const std::string& sentence) {
    if (std::find(active.begin(), active.end(), sentence) == active.end()) active.push_back(sentence);
  };
  if (!flag_of(report.facts, "provider", "extended_posting"))
    add("Work requests are posted by the classic interface of libibverbs.");
  if (!flag_of(report.facts, "provider", "extended_polling"))
    add("Completions are polled by the classic interface of libibverbs.");
  if (const std::string reads = text_of(report.facts, "provider", "max_posted_reads");
      reads != "0" && reads != "unknown")
    add("At most " + reads + " RDMA Reads of a queue pair are posted, with one piece each.");
  for (const Result& result : report.results)
    if (const Avoided* const row = avoided(result); row != nullptr && result.outcome == Outcome::Failed)
      add(row->workaround);
  return active;
}

void explain(std::ostream& out, const Report& report) {
  const auto fact = [&](const char* section, const char* name) {
    return text_of(report.facts, section, name);
  };
  out << "Card: " << fact("device", "name") << " port " << fact("device", "port") << ", provider "
      << fact("provider", "name") << ", firmware " << fact("attributes", "fw_ver") << ", board "
      << fact("hardware", "board") << '\n';
  out << "System: " << fact("system", "distribution") << ", Linux " << fact("system", "kernel") << ", "
      << fact("system", "packages") << ", Sluice " << fact("system", "sluice") << '\n';
  if (const std::string deviation = fact("provider", "deviation");
      !deviation.empty() && deviation != "unknown")
    out << "Known of the provider: " << deviation << '\n';
  out << "Tests: " << report.results.size() << ", failed: " << report.count(Outcome::Failed)
      << ", skipped: " << report.count(Outcome::Skipped) << "\n\nRoles:\n";
  for (const Role& one : roles_of(report))
    out << "  " << one.name << ": " << text_of(one.verdict)
        << (one.remark.empty() ? "" : " (" + one.remark + ")") << '\n';
  out << "\nLimits:\n";
  for (const std::string& limit : limits_of(report)) out << "  " << limit << '\n';
  out << "\nWorkarounds that are active:\n";
  for (const std::string& sentence : workarounds_of(report)) out << "  " << sentence << '\n';
  if (report.count(Outcome::Failed) == 0) return;
  out << "\nFailed tests:\n";
  for (const Result& result : report.results)
    if (result.outcome == Outcome::Failed)
      out << "  " << result.name << (avoided(result) != nullptr ? " (avoided)" : "") << '\n';
}

}  // namespace sluice::card_check
