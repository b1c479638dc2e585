// SPDX-License-Identifier: Apache-2.0
#include "cli/conformance/v2_conversation.h"

#include <utility>

#include "cli/conformance/v2_calls.h"

namespace sluice::conformance {

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
  longest_ = std::max(longest_, message.bytes.size());
  if (is_error) refusals_[message.header.xid] = word_at(message.bytes, 5);
  const bool passes = is_error || message.is_grant();
  const bool same = sequence_ && sequence_->xid == message.header.xid &&
                    sequence_->type == message.header.proc && sequence_->response == message.response();
  breaks_sequence_ = sequence_ && !same && !passes;
  begins_ = !passes && !same;
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
  if ((word_at(message, 4) & v2::kResponse) == 0) asked_.insert(word_at(message, 0));
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

}  // namespace sluice::conformance
