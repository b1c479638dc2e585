// SPDX-License-Identifier: Apache-2.0
#include "cli/conformance/judge.h"

#include <algorithm>

namespace sluice::conformance {
namespace {

constexpr std::size_t kLinesKept = 12;

std::vector<rdma::Rkey> handles_of(const RawCall& header) {
  std::vector<rdma::Rkey> handles;
  for (const RawRead& read : header.reads) handles.push_back(read.segment.handle);
  for (const auto& chunk : header.writes)
    for (const auto& segment : chunk) handles.push_back(segment.handle);
  if (header.reply)
    for (const auto& segment : *header.reply) handles.push_back(segment.handle);
  return handles;
}

bool share_one(const std::vector<rdma::Rkey>& a, const std::vector<rdma::Rkey>& b) {
  return std::find_first_of(a.begin(), a.end(), b.begin(), b.end()) != a.end();
}

}  // namespace

void Conversation::count_call(std::uint32_t xid) {
  xid_again = !unanswered.insert(xid).second;
  beyond_grant = false;
  if (unanswered.size() <= grant) return;
  beyond_grant = in_flight == 0;
  if (in_flight > 0) --in_flight;
  too_many += beyond_grant;
}

void Conversation::count_reply(std::uint32_t xid, std::uint32_t granted) {
  granted = std::max(granted, 1u);  // with nothing open, one call may always be sent
  // Calls that the client sent before it sees this reply are within the old grant.
  if (granted < grant && unanswered.size() < grant)
    in_flight += grant - static_cast<std::uint32_t>(unanswered.size());
  grant = granted;
  ++replies;
  unanswered.erase(xid);
}

CallSight see_call(const ClientMessage& message, std::vector<ReadChunk> chunks) {
  CallSight sight;
  Bytes stream(message.payload().begin(), message.payload().end());
  std::vector<ReadChunk> normal = chunks;
  const auto zero =
      std::find_if(normal.begin(), normal.end(), [](const auto& chunk) { return chunk.position == 0; });
  if (message.header.proc == 1 && zero != normal.end()) {
    stream = std::move(zero->bytes);
    normal.erase(zero);
  }
  auto whole = assembled(stream, std::move(normal));
  sight.whole = whole.has_value();
  sight.rpc = read_rpc_call(whole ? std::move(*whole) : std::move(stream));
  sight.upper = upper_layer_of(sight.rpc);
  sight.chunks = std::move(chunks);
  return sight;
}

void Finding::holds(bool kept, const std::string& wanted) {
  ++seen_;
  if (kept || ++broken_ > 1) return;
  wanted_ = wanted;
  history_.assign(recent_->begin(), recent_->end());
}

Result Finding::result(const Test& test, const char* needs, bool strict) const {
  Result result{.test = &test, .detail = {}, .history = history_};
  if (seen_ == 0) {
    result.outcome = Outcome::Skipped;
    result.detail = std::string("Not seen: ") + needs + ".";
  } else if (broken_ == 0) {
    result.detail = "Judged " + std::to_string(seen_) + (seen_ == 1 ? " time." : " times.");
  } else {
    result.outcome = test.level == Level::Must || strict ? Outcome::Failed : Outcome::Unmet;
    result.detail =
        "Wanted: " + wanted_ + " (" + std::to_string(broken_) + " of " + std::to_string(seen_) + ")";
  }
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

Judge::Judge(std::uint32_t version)
    : version_(version), rules_(client_rules(version)), findings_(rules_.size(), Finding(recent_)) {}

void Judge::note(const std::string& line) {
  if (recent_.size() == kLinesKept) recent_.pop_front();
  recent_.push_back(line);
}

void Judge::ask(What what, const Sight& sight) {
  if (sight.at.version != version_) return;
  for (std::size_t i = 0; i < rules_.size(); ++i)
    if (rules_[i]->what == what) rules_[i]->look(sight, findings_[i]);
}

void Judge::connected(Conversation& at, std::span<const std::byte> private_data) {
  at.private_data.assign(private_data.begin(), private_data.end());
  at.client_data = rpcrdma::decode_private_data(private_data);
  note(shown(("connection " + std::to_string(at.number) + ", private data of").c_str(), private_data));
  ask(What::Connection, {.at = at});
}

void Judge::came(Conversation& at, const ClientMessage& message) {
  ++at.messages;
  at.beyond_grant = at.xid_again = false;
  at.errors += message.bytes.size() >= 16 && message.header.proc == 4;
  if (at.version == 2) at.v2.came(message);
  if (message.is_call() && (at.version == 1 || at.v2.begins())) at.count_call(message.header.xid);
  note(shown("got ", message.bytes));
  ask(What::Message, {.at = at, .message = &message});
}

void Judge::assembled_call(const Conversation& at, const ClientMessage& message, CallSight call) {
  const auto handles = handles_of(message.header);
  if (const auto before = lost_.find(message.header.xid); before != lost_.end() &&
                                                          before->second.program == call.rpc.program &&
                                                          before->second.procedure == call.rpc.procedure) {
    call.again = true;
    call.old_handles = share_one(handles, before->second.handles);
    lost_.erase(before);
  }
  call.same_handles = share_one(handles, handles_before_);
  if (!handles.empty()) handles_before_ = handles;
  open_[message.header.xid] = {call.rpc.program, call.rpc.procedure, handles};
  ask(What::Call, {.at = at, .message = &message, .call = &call});
}

void Judge::learned(Conversation& at, const ClientMessage& message, const PropertySet& set) {
  ask(What::Properties, {.at = at, .message = &message, .properties = &set});
  if (set.defect.empty()) at.v2.learn(set);
}

void Judge::sent(Conversation& at, std::span<const std::byte> message) {
  note(shown("sent", message));
  if (at.version == 2) at.v2.sent(message);
}

void Judge::answered(Conversation& at, std::uint32_t xid, std::uint32_t granted) {
  at.count_reply(xid, granted);
  open_.erase(xid);
}

void Judge::transferred(const Conversation& at, rdma::WcOpcode opcode, rdma::WcStatus status) {
  if (status == rdma::WcStatus::WrFlushError) return;
  ask(What::Transfer, {.at = at, .transfer = opcode, .status = status});
}

void Judge::ended(const Conversation& at) {
  note("connection " + std::to_string(at.number) + " has ended");
  for (const std::uint32_t xid : at.unanswered)
    if (auto open = open_.extract(xid)) lost_[xid] = std::move(open.mapped());
}

std::vector<Result> Judge::results(bool strict) const {
  std::vector<Result> results;
  for (std::size_t i = 0; i < rules_.size(); ++i)
    results.push_back(findings_[i].result(rules_[i]->test, rules_[i]->needs, strict));
  return results;
}

}  // namespace sluice::conformance
