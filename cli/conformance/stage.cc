// SPDX-License-Identifier: Apache-2.0
#include "cli/conformance/stage.h"

#include "dataplane/ulb/nfs3.h"

namespace sluice::conformance {
namespace {

/// That have to come behind a call that is done: some may have been sent before.
constexpr int kCallsBehind = 10;

}  // namespace

bool Stage::is_nfs(const WaitingCall& call) {
  return call.sight.rpc.program == kNfs && call.sight.rpc.procedure != 0;
}

bool Stage::is_harmless(const WaitingCall& call) {
  const RpcCall& rpc = call.sight.rpc;
  return rpc.is(kNfs, 3, ulb::kNfs3GetAttr) || rpc.is(kNfs, 3, ulb::kNfs3Lookup) ||
         rpc.is(kNfs, 3, ulb::kNfs3Access);
}

std::optional<WaitingCall> Stage::next(const Suits& suits) {
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
    if (!call.visit->ended && call.visit->talk.unanswered.count(call.xid()) != 0) responder.serve(call);
}

WaitingCall Stage::await(const Suits& suits, const std::string& what) {
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
  for (int i = 0; i < kCallsBehind; ++i) {
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
               const std::function<bool()>& stopped) {
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
  stage.serve_what_is_left();
  responder.set_grant(grant);
  responder.set_receive_bytes(receive_bytes);
  responder.set_announcement(responder.usual_announcement());
  responder.set_first_answer(nullptr);
  return result;
}

}  // namespace sluice::conformance
