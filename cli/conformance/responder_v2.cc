// SPDX-License-Identifier: Apache-2.0
//
// The responder where it differs in version 2: what comes is checked and joined, what goes waits for credits.
#include <utility>

#include "cli/conformance/responder.h"

namespace sluice::conformance {
namespace {

constexpr std::uint32_t kErrVers = 1;
constexpr std::uint32_t kBadXdr = 2;
constexpr std::uint32_t kInvalHtype = 3;
constexpr std::uint32_t kInvalFlag = 4;
constexpr std::size_t kPrefixBytes = 20;
constexpr std::uint32_t kLeastWindow = 2;
constexpr std::uint32_t kLeastReceive = 1024;
constexpr std::uint32_t kLeastSegment = 4096;
/// That no client need take longer ones (draft, section 4.3.2).
constexpr std::uint32_t kDefaultSendBytes = 4096;

void stamp(Bytes& message, std::uint32_t window, std::uint32_t granted) {
  xdr::store_u32(message.data() + 8, window << 16 | granted);
}

}  // namespace

Announcement Responder::usual_announcement() const {
  return {{kReceiveSize, words({receive_bytes_})}};
}

void Responder::greet(Visit& visit) {
  Bytes message = v2::Header{.xid = next_xid_++, .type = v2::kConnProp}.then(
      {static_cast<std::uint32_t>(announcement_.size())});
  for (const auto& [id, data] : announcement_) {
    append(message, words({id, static_cast<std::uint32_t>(data.size())}));
    append(message, data);
    message.resize(padded(message.size()));
    const std::uint32_t value = data.size() == 4 ? word_at(data, 0) : 0;
    // Who cannot live with less need not keep to it (D2-20).
    if (id == kReceiveSize && value >= kLeastReceive) visit.talk.receive_bytes = value;
    if (id == kSegmentSize && value >= kLeastSegment) visit.talk.segment_bytes = value;
    if (id == kSegmentCount && value > 0) visit.talk.segments = value;
  }
  send(visit, message);
}

// --- What comes

/// A client may begin with version 1, or go on with it when version 2 is refused.
bool Responder::turns_to_version_1(const Visit& visit, std::span<const std::byte> message) {
  const Version2Conversation& talk = visit.talk.v2;
  return visit.talk.version == 2 && word_at(message, 1) == 1 && !talk.has_granted() &&
         (talk.messages() == 0 || talk.errors_sent() > 0);
}

/// Why a message that is no reply is answered with an ERROR; zero: it is not.
std::uint32_t Responder::defect_of(const Visit& visit, const ClientMessage& message) const {
  const std::uint32_t type = message.header.proc;
  if (type > v2::kConnProp || type == 2 || type == 3) return kInvalHtype;
  if ((message.flags & ~(v2::kResponse | v2::kMore)) != 0) return kInvalFlag;
  if (visit.talk.v2.breaks_sequence()) return kInvalFlag;
  if (message.more() && (type == v2::kNoMsg || message.has_chunks())) return kInvalFlag;
  return message.readable() ? 0 : kBadXdr;
}

void Responder::take_version_2(Visit& visit, ClientMessage message) {
  if (message.bytes.size() < kPrefixBytes) return;
  if (message.header.version != 2) return error(visit, message.header, kErrVers);
  if (visit.talk.messages == 1) {
    if (first_answer_) return first_answer_(visit, message);
    greet(visit);
  }
  take_fixed_version_2(visit, std::move(message));
}

void Responder::take_first(Visit& visit, ClientMessage first) {
  take_fixed_version_2(visit, std::move(first));
  flush(visit);
}

void Responder::take_fixed_version_2(Visit& visit, ClientMessage message) {
  if (message.header.proc == v2::kError || message.is_grant()) return;
  if (const std::uint32_t code = defect_of(visit, message); code != 0) {
    if (!message.response()) error(visit, message.header, code);
    return;
  }
  auto whole = visit.talk.v2.join(std::move(message));
  if (!whole) return;
  if (whole->header.proc == v2::kConnProp) {
    const PropertySet set = read_properties(whole->payload());
    judge_.learned(visit.talk, *whole, set);
    if (!set.defect.empty()) error(visit, whole->header, kBadXdr);
    return;
  }
  if (whole->is_call()) return visit.calls.push_back(std::move(*whole));
  if (visit.reverse.erase(whole->header.xid) != 0) visit.upstream->send(whole->payload());
}

// --- What is sent

/// Sends what there are credits for, and a grant when nothing else tells the client of new ones.
void Responder::flush(Visit& visit) {
  Version2Conversation& talk = visit.talk.v2;
  const std::uint32_t window = std::max(grant_, kLeastWindow);
  if (visit.outbox.empty() && talk.has_granted() && talk.balance() >= 0 && talk.grant_due(window))
    visit.outbox.push_back({v2::Header{.xid = 0, .type = v2::kNoMsg}.bytes()});
  while (!visit.outbox.empty() && !visit.ended && visit.talk.version == 2) {
    Outgoing& next = visit.outbox.front();
    if (talk.balance() < (v2::is_grant(next.bytes) ? 0 : 1)) return;
    const bool is_error = word_at(next.bytes, 3) == v2::kError;
    if (!next.as_it_is && !is_error) stamp(next.bytes, window, talk.offer(window));
    judge_.sent(visit.talk, next.bytes);
    visit.end->send(next.bytes, next.invalidate);
    ++visit.posted;
    visit.outbox.pop_front();
  }
}

void Responder::send_as_it_is(Visit& visit, std::span<const std::byte> message) {
  visit.outbox.push_back({{message.begin(), message.end()}, {}, true});
}

void Responder::reply_version_2(const WaitingCall& call, v2::Header header,
                                std::span<const std::byte> payload, const Manner& manner) {
  Visit& visit = *call.visit;
  const auto chunk = std::exchange(header.reply, std::nullopt);
  const std::uint32_t limit = std::min(visit.talk.client_receive_bytes(), kDefaultSendBytes);
  const bool fits = header.bytes().size() + payload.size() <= limit;
  const bool in_chunk = chunk && payload.size() <= bytes_in(*chunk) &&
                        (manner.always_reply_chunk || (!fits && !manner.in_parts));
  judge_.answered(visit.talk, call.xid(), grant_);
  if (in_chunk || manner.echoed_reply_chunk) header.reply = chunk;
  if (header.reply) write(visit, *header.reply, in_chunk ? payload : std::span<const std::byte>{});
  if (!in_chunk) return send_parts(visit, header, payload, manner);
  header.type = v2::kNoMsg;
  send(visit, header.bytes(), manner.invalidate);
}

/// One after the other; chunks are in the last part alone.
void Responder::send_parts(Visit& visit, const v2::Header& last, std::span<const std::byte> payload,
                           const Manner& manner) {
  std::uint32_t limit = std::min(visit.talk.client_receive_bytes(), kDefaultSendBytes);
  if (manner.part_bytes != 0) limit = std::min(limit, manner.part_bytes);
  const v2::Header part{.xid = last.xid, .flags = last.flags | v2::kMore};
  const std::size_t before_last = last.bytes().size();
  // Something is left for the last part.
  while (payload.size() > 4 && before_last + payload.size() > limit) {
    const std::size_t taken = std::min((limit - part.bytes().size()) & ~std::size_t{3}, payload.size() - 4);
    send(visit, part.with(payload.first(taken)));
    payload = payload.subspan(taken);
  }
  send(visit, last.with(payload), manner.invalidate);
}

}  // namespace sluice::conformance
