// SPDX-License-Identifier: Apache-2.0
//
// Runs of the program: tests of a server, provocations of the clients that connect to it, and reports of
// both.
#include "cli/conformance/run.h"

#include <algorithm>
#include <memory>
#include <ostream>
#include <set>
#include <string>
#include <string_view>

#include "cli/conformance/judge.h"
#include "cli/conformance/listen.h"
#include "cli/conformance/nfs.h"
#include "cli/conformance/stage.h"
#include "cli/conformance/tests.h"
#include "cli/conformance/upstream.h"
#include "cli/interrupt.h"
#include "controlplane/json/json.h"
#include "dataplane/base/small_algorithms.h"
#include "dataplane/ulb/nfs3.h"

namespace sluice::conformance {

// --- Tests and rules

const char* to_string(Level level) {
  switch (level) {
    case Level::Must:
      return "MUST";
    case Level::Should:
      return "SHOULD";
    case Level::Decision:
      return "decision";
  }
  return "?";
}

std::vector<const Test*> tests_of(std::uint32_t version) {
  std::vector<const Test*> result;
  const auto add = [&](std::span<const Test> tests) {
    for (const Test& test : tests) result.push_back(&test);
  };
  if (version == 1) {
    add(tests_of_messages());
    add(tests_of_errors());
    add(tests_of_credits());
    add(tests_of_read_chunks());
    add(tests_of_write_chunks());
    add(tests_of_long_calls());
    add(tests_of_reply_chunks());
  } else {
    add(tests_of_version_2());
    add(tests_of_version_2_chunks());
    add(tests_of_version_2_continuation());
    add(tests_of_version_2_credits());
    add(tests_of_version_2_properties());
  }
  std::stable_sort(result.begin(), result.end(),
                   [](const Test* a, const Test* b) { return rows_of(*a).front() < rows_of(*b).front(); });
  std::stable_partition(result.begin(), result.end(), [](const Test* test) { return !test->destructive; });
  return result;
}

std::vector<const Rule*> client_rules(std::uint32_t version) {
  std::vector<const Rule*> rules;
  const auto add = [&](std::span<const Rule> table) {
    for (const Rule& rule : table) rules.push_back(&rule);
  };
  add(version == 1 ? rules_of_messages() : rules_of_version_2_messages());
  add(version == 1 ? rules_of_calls() : rules_of_version_2_calls());
  std::stable_sort(rules.begin(), rules.end(), [](const Rule* a, const Rule* b) {
    return rows_of(a->test).front() < rows_of(b->test).front();
  });
  return rules;
}

std::vector<std::string> rows_of(const Test& test) {
  constexpr std::size_t kIdLength = 6;  // V1_022
  const std::string_view name = test.name;
  std::vector<std::string> rows;
  for (std::size_t at = 0; at + kIdLength < name.size(); at += kIdLength + 1) {
    const std::string_view id = name.substr(at, kIdLength);
    if (id[0] != 'V' || id[2] != '_' || id.find_first_not_of("0123456789", 3) != std::string_view::npos)
      break;
    rows.push_back(std::string(id.substr(0, 2)) + "-" + std::string(id.substr(3)));
  }
  return rows;
}

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

/// Restores the file, so that the changes of one test do not affect the verdict on the next one.
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
  Json tests = Json::array();
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
  out << Json{{"tests", tests},      {"rows", rows.size()}, {"passed", counts[0]},
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
    out << test->name << "\n    " << to_string(test->level) << ". " << test->asks
        << (test->destructive ? " Runs with --destructive only.\n" : "\n");
  out << tests.size() << " tests of " << count_rows(tests) << " rows\n";
}

// --- Provocations of a client

namespace {

/// Number of calls that must follow a completed call. Several are required because the client may have sent
/// some of them before the reply.
constexpr int kPlainCallsBehind = 10;

}  // namespace

bool Stage::is_nfs(const WaitingCall& call) {
  return call.sight.rpc.program == kNfs && call.sight.rpc.procedure != 0;
}

bool Stage::is_harmless(const WaitingCall& call) {
  const RpcCall& rpc = call.sight.rpc;
  return rpc.is(kNfs, 3, ulb::kNfs3GetAttr) || rpc.is(kNfs, 3, ulb::kNfs3Lookup) ||
         rpc.is(kNfs, 3, ulb::kNfs3Access);
}

std::optional<WaitingCall> Stage::next(Suits suits) {
  std::optional<WaitingCall> found;
  responder.wait(patience_ns_, [&] {
    while (!found && !responder.waiting().empty()) {
      WaitingCall call = responder.take();
      if (suits(call))
        found = std::move(call);
      else
        responder.serve(call);
    }
    return found || stopped_();
  });
  if (found) taken_.push_back(*found);
  return found;
}

void Stage::serve_what_is_left() {
  for (const WaitingCall& call : taken_)
    if (!call.visit->ended && has_element(call.visit->talk.unanswered, call.xid())) responder.serve(call);
}

WaitingCall Stage::await(Suits suits, const std::string& what) {
  auto call = next(suits);
  if (!call) skip("Not seen: " + what + ".");
  return std::move(*call);
}

void Stage::serve(std::uint32_t calls) {
  for (; calls > 0; --calls) responder.serve(await([](const WaitingCall&) { return true; }, "further calls"));
}

void Stage::expect_done(const WaitingCall& call) {
  const auto again = expect_done_or_again(call);
  if (again) responder.serve(*again);
  expect(!again, "that the call is not repeated");
}

std::optional<WaitingCall> Stage::expect_done_or_again(const WaitingCall& call) {
  for (int i = 0; i < kPlainCallsBehind; ++i) {
    auto behind = next([](const WaitingCall&) { return true; });
    if (stopped_()) skip("It was stopped before the client went on.");
    expect(behind.has_value(), "further calls of the client");
    if (behind->xid() == call.xid()) return behind;
    responder.serve(*behind);
  }
  expect(!call.visit->ended, "the connection to stay");
  expect(call.visit->talk.errors == 0, "no ERROR of the client");
  return std::nullopt;
}

void Stage::expect_again(const WaitingCall& call) {
  const auto again =
      next([&](const WaitingCall& other) { return other.xid() == call.xid() && other.visit != call.visit; });
  if (!again && stopped_()) skip("It was stopped before the client came back.");
  expect(again.has_value(), "the call with its XID on a new connection");
  expect(again->sight.rpc.procedure == call.sight.rpc.procedure, "the same call");
  responder.serve(*again);
}

std::vector<const Provocation*> provocations_of(std::uint32_t version) {
  std::vector<const Provocation*> all;
  const auto add = [&](std::span<const Provocation> table) {
    for (const Provocation& provocation : table) all.push_back(&provocation);
  };
  if (version == 1) {
    add(provocations());
    add(broken_replies());
  } else {
    add(provocations_of_version_2());
    add(refusals_of_version_2());
    add(errors_of_version_2());
    add(broken_replies_of_version_2());
    add(first_answers_of_version_2());
  }
  return all;
}

Result provoke(const Provocation& provocation, Responder& responder, std::uint64_t patience_ns, bool strict,
               FunctionRef<bool()> stopped) {
  Result result{.test = &provocation.test, .detail = {}, .history = {}};
  const std::uint32_t grant = responder.grant();
  const std::uint32_t receive_bytes = responder.receive_bytes();
  Stage stage(responder, patience_ns, stopped);
  try {
    responder.judge().note(std::string("--- ") + provocation.test.name);
    provocation.run(stage);
  } catch (const Skipped& why) {
    result.outcome = Outcome::Skipped;
    result.detail = why.what();
  } catch (const Failure& failure) {
    result.outcome = provocation.test.level == Level::Must || strict ? Outcome::Failed : Outcome::Unmet;
    result.detail = failure.what();
    result.history = responder.judge().recent();
  }
  responder.clear_first_answer();  // it may refer to variables of the provocation
  stage.serve_what_is_left();
  responder.set_grant(grant);
  responder.set_receive_bytes(receive_bytes);
  responder.set_announcement(responder.usual_announcement());
  return result;
}

// --- Listening

namespace {

constexpr std::uint32_t kCallsBetween = 30;

MakeUpstream upstream_of(const std::string& address) {
  if (address.empty()) return [] { return std::make_unique<NullUpstream>(); };
  return [address] { return std::make_unique<TcpUpstream>(address); };
}

void serve(Responder& responder, FunctionRef<bool()> done) {
  while (!done()) {
    responder.turn();
    if (!responder.waiting().empty()) responder.serve(responder.take());
  }
}

/// Serves some calls, so that the effects of one provocation are not attributed to the next one.
void serve_some(Responder& responder, std::uint64_t patience_ns, FunctionRef<bool()> stopped) {
  const std::uint64_t end = responder.calls_served() + kCallsBetween;
  responder.wait(patience_ns, [&] {
    if (!responder.waiting().empty()) responder.serve(responder.take());
    return responder.calls_served() >= end || stopped();
  });
}

}  // namespace

std::vector<Result> listen(rdma::Device& device, rdma::ConnectionManager& manager,
                           const ListenOptions& options, std::span<const Test* const> tests,
                           std::ostream& log) {
  Judge judge(options.responder.version);
  const MakeUpstream make_upstream = upstream_of(options.upstream);
  make_upstream();  // reports a wrong address immediately
  Responder responder(device, manager, judge, make_upstream, options.responder);
  const cli::Interruptible interruptible;
  log << "Listening on port " << options.responder.port << "." << std::endl;
  const auto chosen = [&](const Test& test) {
    return std::find(tests.begin(), tests.end(), &test) != tests.end();
  };
  const auto stopped = [&] { return interruptible.told_to_end(); };
  std::vector<Result> results;
  serve(responder,
        [&] { return stopped() || (!options.calm && responder.calls_served() >= options.first_calls); });
  if (!options.calm) {
    const auto patience_ns = static_cast<std::uint64_t>(options.patience_s * 1e9);
    for (const Provocation* provocation : provocations_of(options.responder.version)) {
      if (!chosen(provocation->test)) continue;
      serve_some(responder, patience_ns, stopped);
      results.push_back(provoke(*provocation, responder, patience_ns, options.strict, stopped));
    }
    log << "All has been tried." << std::endl;
  }
  serve(responder, stopped);
  for (Result& result : judge.results(options.strict))
    if (chosen(*result.test)) results.push_back(std::move(result));
  std::stable_sort(results.begin(), results.end(), [](const Result& a, const Result& b) {
    return rows_of(*a.test).front() < rows_of(*b.test).front();
  });
  return results;
}

std::vector<const Test*> client_tests(std::uint32_t version) {
  std::vector<const Test*> tests;
  for (const Rule* rule : client_rules(version)) tests.push_back(&rule->test);
  for (const Provocation* provocation : provocations_of(version)) tests.push_back(&provocation->test);
  return tests;
}

}  // namespace sluice::conformance
