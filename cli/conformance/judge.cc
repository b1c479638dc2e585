// SPDX-License-Identifier: Apache-2.0
#include "cli/conformance/judge.h"

#include <utility>

#include "cli/conformance/v2_calls.h"
#include "cli/conformance/v2_conversation.h"
#include "dataplane/base/small_algorithms.h"

namespace sluice::conformance {

// --- A connection of version 2

PropertySet read_properties(std::span<const std::byte> body) {
  PropertySet set;
  xdr::Reader reader(body);
  for (std::uint32_t left = reader.u32(); left > 0 && reader.ok(); --left) {
    const std::uint32_t id = reader.u32();
    const auto data = reader.opaque(static_cast<std::uint32_t>(body.size()));
    if (reader.ok()) set.entries.push_back({id, {data.begin(), data.end()}});
  }
  if (!reader.ok())
    set.defect = "a count or a length goes beyond its end";
  else if (reader.remaining() > 0)
    set.defect = "something is behind the last property";
  return set;
}

void Version2Conversation::came(const ClientMessage& message) {
  ++received_;
  const bool in_reserve = has_granted_ && message.is_grant();
  beyond_grant_ = received_ > granted_ + in_reserve;
  const bool is_error = message.header.version == 2 && message.header.proc == v2::kError;
  if (message.bytes.size() >= 20 && message.header.version == 2 && !is_error)
    balance_ += message.header.credits & 0xFFFF;
  overdrafts_ += beyond_grant_;
  longest_ = larger_of(longest_, message.bytes.size());
  if (is_error) note_refusal(message.header.xid, word_at(message.bytes, 5));
  const bool passes = is_error || message.is_grant();
  const bool same = sequence_ && sequence_->xid == message.header.xid &&
                    sequence_->type == message.header.proc && sequence_->response == message.response();
  breaks_sequence_ = sequence_ && !same && !passes;
  begins_ = !passes && !same;
}

void Version2Conversation::asked(std::uint32_t xid) {
  if (!has_asked(xid)) asked_.push_back(xid);
}

void Version2Conversation::note_refusal(std::uint32_t xid, std::uint32_t code) {
  std::erase_if(refusals_, [&](const Refusal& refusal) { return refusal.xid == xid; });
  refusals_.push_back({xid, code});
}

void Version2Conversation::sent(std::span<const std::byte> message) {
  --balance_;
  if (message.size() < 20 || word_at(message, 1) != 2) return;
  if (word_at(message, 3) == v2::kError) {
    ++errors_sent_;
    if (!has_granted_) ++granted_;  // D2-16
    return;
  }
  has_granted_ = true;
  granted_ += word_at(message, 2) & 0xFFFF;
  if ((word_at(message, 4) & v2::kResponse) == 0) asked(word_at(message, 0));
}

std::optional<ClientMessage> Version2Conversation::join(ClientMessage part) {
  if (begins_) sequence_.reset();
  if (!sequence_ && !part.more()) return part;
  if (!sequence_) sequence_ = {part.header.xid, part.header.proc, part.response(), {}};
  append(sequence_->joined, part.payload());
  if (part.more()) return std::nullopt;
  part.bytes.resize(part.header_bytes);
  append(part.bytes, std::exchange(sequence_, std::nullopt)->joined);
  return part;
}

void Version2Conversation::learn(const PropertySet& set) {
  if (sets_++ > 0) return;
  for (const PropertySet::Entry& entry : set.entries) {
    if (entry.data.size() != 4) continue;
    const std::uint32_t value = word_at(entry.data, 0);
    if (entry.id == kSendSize) client_.send_bytes = value;
    if (entry.id == kReceiveSize) client_.receive_bytes = value;
    if (entry.id == kReverseSupport) client_.reverse = value;
  }
}

std::uint32_t Version2Conversation::offer(std::uint32_t window) const {
  const std::int64_t unused = std::int64_t{granted_} - received_;
  return static_cast<std::uint32_t>(bounded<std::int64_t>(window - unused, 0, 0xFFFF));
}

bool Version2Conversation::grant_due(std::uint32_t window) const {
  return messages() > 0 && std::int64_t{granted_} - received_ <= smaller_of(window / 2, window - 2) &&
         offer(window) > 0;
}

bool Version2Conversation::has_asked(std::uint32_t xid) const {
  return has_element(asked_, xid);
}

std::optional<std::uint32_t> Version2Conversation::refusal_of(std::uint32_t xid) const {
  for (const Refusal& refusal : refusals_)
    if (refusal.xid == xid) return refusal.code;
  return std::nullopt;
}

// --- Events that are judged

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
  for (const rdma::Rkey handle : a)
    if (has_element(b, handle)) return true;
  return false;
}

}  // namespace

void Conversation::count_call(std::uint32_t xid) {
  xid_again = has_element(unanswered, xid);
  if (!xid_again) unanswered.push_back(xid);
  beyond_grant = false;
  if (unanswered.size() <= grant) return;
  beyond_grant = in_flight == 0;
  if (in_flight > 0) --in_flight;
  too_many += beyond_grant;
}

void Conversation::count_reply(std::uint32_t xid, std::uint32_t granted) {
  granted = larger_of(granted, 1u);  // without unanswered calls, one call may always be sent
  // Calls that the client sends before it receives this reply are within the old grant.
  if (granted < grant && unanswered.size() < grant)
    in_flight += grant - static_cast<std::uint32_t>(unanswered.size());
  grant = granted;
  ++replies;
  std::erase(unanswered, xid);
}

CallSight see_call(const ClientMessage& message, std::vector<ReadChunk> chunks) {
  CallSight sight;
  Bytes stream(message.payload().begin(), message.payload().end());
  std::vector<ReadChunk> normal = chunks;
  auto zero = normal.begin();
  while (zero != normal.end() && zero->position != 0) ++zero;
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
  history_ = *recent_;
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
        "Expected: " + wanted_ + " (" + std::to_string(broken_) + " of " + std::to_string(seen_) + ")";
  }
  return result;
}

Judge::Judge(std::uint32_t version)
    : version_(version), rules_(client_rules(version)), findings_(rules_.size(), Finding(recent_)) {}

void Judge::note(const std::string& line) {
  if (recent_.size() == kLinesKept) recent_.erase(recent_.begin());
  recent_.push_back(line);
}

/// Removes the call with this XID from the list and returns it.
std::optional<Judge::OpenCall> Judge::extract(std::vector<OpenCall>& calls, std::uint32_t xid) {
  auto found = calls.begin();
  while (found != calls.end() && found->xid != xid) ++found;
  if (found == calls.end()) return std::nullopt;
  std::optional<OpenCall> call = std::move(*found);
  calls.erase(found);
  return call;
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
  const std::uint32_t xid = message.header.xid;
  auto before = lost_.begin();
  while (before != lost_.end() && before->xid != xid) ++before;
  if (before != lost_.end() && before->program == call.rpc.program &&
      before->procedure == call.rpc.procedure) {
    call.again = true;
    call.old_handles = share_one(handles, before->handles);
    lost_.erase(before);
  }
  call.same_handles = share_one(handles, handles_before_);
  if (!handles.empty()) handles_before_ = handles;
  extract(open_, xid);
  open_.push_back({xid, call.rpc.program, call.rpc.procedure, handles});
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
  extract(open_, xid);
}

void Judge::transferred(const Conversation& at, rdma::WcOpcode opcode, rdma::WcStatus status) {
  if (status == rdma::WcStatus::WrFlushError) return;
  ask(What::Transfer, {.at = at, .transfer = opcode, .status = status});
}

void Judge::ended(const Conversation& at) {
  note("connection " + std::to_string(at.number) + " has ended");
  for (const std::uint32_t xid : at.unanswered)
    if (auto open = extract(open_, xid)) {
      extract(lost_, xid);
      lost_.push_back(std::move(*open));
    }
}

std::vector<Result> Judge::results(bool strict) const {
  std::vector<Result> results;
  for (std::size_t i = 0; i < rules_.size(); ++i)
    results.push_back(findings_[i].result(rules_[i]->test, rules_[i]->needs, strict));
  return results;
}

}  // namespace sluice::conformance
