// SPDX-License-Identifier: Apache-2.0
#include "cli/card_check/runner.h"

#include <algorithm>
#include <utility>

#include "cli/card_check/child.h"
#include "cli/card_check/known.h"
#include "cli/card_check/process.h"
#include "cli/card_check/sysfs.h"

namespace sluice::card_check {
namespace {

bool is_static(const std::string& name) {
  return name.starts_with("Static.");
}

Result not_run(const Case& one) {
  const Json failures =
      Json::array({"The test was not run, because the earlier ones took as long as --limit permits."});
  return {one.name, Result::Outcome::Failed, {}, {{"failures", failures}}};
}

}  // namespace

std::vector<Case> cases_of(const Modes& modes, const std::string& only) {
  const std::vector<std::string> names = linked_tests();
  std::vector<Case> cases;
  const auto add = [&](const char* mode, bool statics, bool two_gids) {
    for (const std::string& name : names) {
      const std::string shown = mode + (": " + name);
      if (is_static(name) == statics && shown.find(only) != std::string::npos)
        cases.push_back({.name = shown, .filter = name, .two_gids = two_gids});
    }
  };
  if (modes.statics) add("static", true, false);
  if (modes.loopback) add("loopback", false, false);
  if (modes.two_gids) add("two-gids", false, true);
  return cases;
}

Runner::Runner(const Choice& choice, std::vector<Case> cases, const Limits& limits)
    : cases_(std::move(cases)), limits_(limits) {
  const Ended ended = run_child({.test = {}, .choice = choice}, limits_.test);
  const std::optional<Json> message = Json::try_parse(ended.messages);
  if (ended.how != Ended::How::Exited || !message) {
    // The provider's library is the reason, which is a result.
    report_.facts = {{"system", system_facts()}};
    broken_ = result_of("facts: the device can be opened and queried", ended);
    cases_.clear();
    return;
  }
  selection_ = selection_of(*message);
  if (!selection_.problem.empty()) throw NoCard(selection_.problem);
  for (const std::vector<std::string>& forms : selection_.identities) masking_.add(forms);
  report_.facts = masking_.masked(selection_.facts);
}

Result Runner::run_case(const Case& one, bool& stuck) const {
  const auto skipped = [&](std::string_view reason) {
    return Result{one.name, Result::Outcome::Skipped, std::string(reason), {}};
  };
  if (one.two_gids && !selection_.second_right)
    return skipped("the port has one usable GID; assign an IPv6 address to its interface");
  if (const std::string_view reason = known_skip(selection_.provider, one.filter); !reason.empty())
    return skipped(reason);
  const std::uint32_t left = one.two_gids ? *selection_.second_left : selection_.gid;
  const std::uint32_t right = one.two_gids ? *selection_.second_right : selection_.gid;
  const std::string folder = selection_.folder + "/ports/" + std::to_string(selection_.port) + "/hw_counters";
  const Counters before = read_counters(folder);
  const Ended ended =
      run_child({.test = one.filter,
                 .choice = {.device = selection_.device, .port = selection_.port, .gid = left},
                 .peer_gid = right},
                limits_.test);
  stuck = ended.how == Ended::How::Stuck;
  Result result = result_of(one.name, ended);
  const Json changed = differences(before, read_counters(folder));
  if (result.outcome == Result::Outcome::Failed && !changed.empty())
    result.diagnostics["hw_counters"] = changed;
  result.diagnostics = masking_.masked(result.diagnostics);
  result.reason = masking_.masked_text(result.reason);
  return result;
}

bool Runner::run(const std::function<void(std::size_t, const Result&)>& each) {
  const auto end = std::chrono::steady_clock::now() + limits_.run;
  bool stuck = false;
  if (broken_) {
    report_.results.push_back(*broken_);
    each(1, *broken_);
  }
  for (const Case& one : cases_) {
    const bool late = std::chrono::steady_clock::now() >= end;
    report_.results.push_back(late ? not_run(one) : run_case(one, stuck));
    each(report_.results.size(), report_.results.back());
    if (stuck) return false;
  }
  return true;
}

}  // namespace sluice::card_check
