// SPDX-License-Identifier: Apache-2.0
#include "cli/conformance/responder.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "cli/conformance/placed_reply.h"

namespace sluice::conformance {
namespace {

/// More than the client is told, so that a message that is too long is seen.
constexpr std::uint32_t kReceiveRoom = 8192;
constexpr std::uint32_t kReceives = 128;
constexpr std::size_t kConnections = 8;
constexpr std::uint32_t kTurnsPerManager = 64;
/// Of all Read chunks of a call, or of its results: the end's memory holds them twice.
constexpr std::uint64_t kMostChunkBytes = 2u << 20;
constexpr std::uint64_t kUpstreamNs = 30'000'000'000;
constexpr std::uint64_t kFarewellNs = 2'000'000'000;
constexpr std::uint32_t kErrVers = 1;
constexpr std::uint32_t kErrChunk = 2;

std::uint64_t now_ns() {
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                        std::chrono::steady_clock::now().time_since_epoch())
                                        .count());
}

}  // namespace

Responder::Responder(rdma::Device& device, rdma::ConnectionManager& manager, Judge& judge,
                     MakeUpstream make_upstream, const ResponderConfig& config)
    : device_(device),
      manager_(manager),
      judge_(judge),
      make_upstream_(std::move(make_upstream)),
      grant_(config.grant),
      receive_bytes_(config.receive_bytes),
      transfer_ns_(config.transfer_ns),
      announcement_(usual_announcement()) {
  manager_.listen(config.port);
}

Responder::~Responder() {
  for (const auto& visit : std::vector(visits_)) hang_up(*visit);
}

// --- What comes

void Responder::poll() {
  rdma::WorkCompletion completions[32];
  const std::size_t count = device_.poll(completions);
  for (const rdma::WorkCompletion& wc : std::span(completions, count))
    for (const auto& visit : visits_)
      if (visit->end->owned_qp->number() == wc.qp) visit->end->take(wc);
  if (turns_++ % kTurnsPerManager == 0) poll_manager();
  for (const auto& visit : std::vector(visits_)) look_at(*visit);
  other_side();
}

void Responder::turn() {
  poll();
  for (const auto& visit : std::vector(visits_)) {
    if (!visit->ended && (visit->end->failed || visit->upstream->gone())) hang_up(*visit);
    while (!visit->calls.empty() && !visit->ended) {
      ClientMessage message = std::move(visit->calls.front());
      visit->calls.pop_front();
      take_call(visit, std::move(message));
    }
  }
}

bool Responder::wait(std::uint64_t limit_ns, const std::function<bool()>& done) {
  const std::uint64_t end = now_ns() + limit_ns;
  while (!done()) {
    if (now_ns() > end) return false;
    turn();
  }
  return true;
}

bool Responder::poll_until(std::uint64_t limit_ns, const std::function<bool()>& done) {
  const std::uint64_t end = now_ns() + limit_ns;
  while (!done()) {
    if (now_ns() > end) return false;
    poll();
  }
  return true;
}

void Responder::poll_manager() {
  rdma::CmEvent events[8];
  const std::size_t count = manager_.poll_events(events);
  for (const rdma::CmEvent& event : std::span(events, count)) {
    if (event.type == rdma::CmEventType::ConnectRequest) accept(event);
    if (event.type != rdma::CmEventType::Disconnected) continue;
    for (const auto& visit : std::vector(visits_))
      if (visit->id == event.id) end(*visit);
  }
}

void Responder::accept(const rdma::CmEvent& event) {
  if (visits_.size() == kConnections) return manager_.reject(event.id, {});
  std::unique_ptr<RawEndpoint> own;
  if (spare_.empty()) {
    own = std::make_unique<RawEndpoint>(device_, kReceiveRoom, kReceives);
  } else {
    own = std::move(spare_.back());
    spare_.pop_back();
  }
  auto visit = std::make_shared<Visit>(std::move(own));
  visit->id = event.id;
  visit->upstream = make_upstream_();
  visit->end->owned_qp = visit->end->make_queue_pair();
  visit->talk.number = ++connections_seen_;
  visit->talk.version = judge_.version();
  visit->talk.receive_bytes = receive_bytes_ != 0 ? receive_bytes_ : rpcrdma::kDefaultInlineBytes;
  const auto data =
      rpcrdma::encode_private_data({.send_bytes = receive_bytes_, .receive_bytes = receive_bytes_});
  visits_.push_back(visit);
  judge_.connected(visit->talk, {event.private_data, event.private_data_bytes});
  const bool accepted =
      manager_.accept(event.id, *visit->end->owned_qp,
                      receive_bytes_ != 0 ? std::span<const std::byte>(data) : std::span<const std::byte>{});
  if (!accepted) end(*visit);
}

void Responder::end(Visit& visit) {
  if (visit.ended) return;
  visit.ended = true;
  judge_.ended(visit.talk);
  visit.end->owned_qp.reset();
  visit.end->forget();
  spare_.push_back(std::move(visit.end));
  std::erase_if(waiting_, [&](const WaitingCall& call) { return call.visit.get() == &visit; });
  std::erase_if(visits_, [&](const auto& other) { return other.get() == &visit; });
}

void Responder::look_at(Visit& visit) {
  if (visit.ended) return;
  for (const rdma::WorkCompletion& wc : visit.end->send_completions) {
    --visit.posted;
    if (!visit.unjudged) judge_.transferred(visit.talk, wc.opcode, wc.status);
  }
  visit.end->send_completions.clear();
  for (Received& received : std::exchange(visit.end->inbox, {}))
    for (int before = 0; !visit.ended && arrives(received.bytes, before); ++before)
      take_message(visit, received.bytes);
  take_from_upstream(visit);
  if (visit.talk.version == 2) flush(visit);
}

void Responder::take_message(Visit& visit, Bytes bytes) {
  if (turns_to_version_1(visit, bytes)) visit.talk.version = 1;
  ClientMessage message = read_client_message(std::move(bytes), visit.talk.version);
  judge_.came(visit.talk, message);
  if (visit.talk.version == 2) return take_version_2(visit, std::move(message));
  take_version_1(visit, std::move(message));
}

void Responder::take_version_1(Visit& visit, ClientMessage message) {
  if (message.is_call()) return visit.calls.push_back(std::move(message));
  if (message.is_reply()) {
    if (visit.reverse.erase(message.header.xid) != 0) visit.upstream->send(message.payload());
    return;
  }
  if (message.bytes.size() < 16 || message.header.proc == 3 || message.header.proc == 4) return;
  error(visit, message.header, message.header.version == 1 ? kErrChunk : kErrVers);
}

void Responder::take_from_upstream(Visit& visit) {
  while (auto message = visit.upstream->receive()) {
    if (word_at(*message, 1) == 1) {
      visit.replies.push_back(std::move(*message));
      continue;
    }
    const std::uint32_t xid = word_at(*message, 0);
    const Bytes call = visit.talk.version == 2 ? v2::Header{.xid = xid}.with(*message)
                                               : RawCall{.xid = xid, .credits = grant_}.with(*message);
    if (call.size() <= visit.talk.client_receive_bytes()) send(visit, call);
    visit.reverse.insert(xid);
  }
}

void Responder::take_call(const std::shared_ptr<Visit>& visit, ClientMessage message) {
  std::vector<ReadChunk> chunks = read_chunks(message.header);
  bool changed = false;
  if (!pull(*visit, chunks, changed)) return;
  CallSight sight = see_call(message, std::move(chunks));
  sight.changed = changed;
  judge_.assembled_call(visit->talk, message, sight);
  WaitingCall call{visit, std::move(message), std::move(sight)};
  if (call.sight.whole && call.sight.rpc.readable && call.sight.rpc.xid == call.xid())
    waiting_.push_back(std::move(call));
  else
    refuse(call, kErrChunk);
}

bool Responder::pull(Visit& visit, std::vector<ReadChunk>& chunks, bool& changed) {
  std::uint64_t sum = 0;
  for (const ReadChunk& chunk : chunks) sum += chunk.length();
  if (sum > kMostChunkBytes) return hang_up(visit), false;
  std::vector<std::span<const std::byte>> twice[2];
  for (auto& once : twice)
    for (const ReadChunk& chunk : chunks)
      for (const rpcrdma::Segment& segment : chunk.segments) {
        once.push_back(read(visit, segment));
      }
  if (!settle(visit)) return false;
  std::size_t at = 0;
  for (ReadChunk& chunk : chunks)
    for (std::size_t i = 0; i < chunk.segments.size(); ++i, ++at) {
      append(chunk.bytes, twice[0][at]);
      changed |= !std::equal(twice[0][at].begin(), twice[0][at].end(), twice[1][at].begin());
    }
  return true;
}

// --- What is sent

WaitingCall Responder::take(std::size_t index) {
  WaitingCall call = std::move(waiting_[index]);
  waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(index));
  return call;
}

std::optional<Bytes> Responder::result_of(const WaitingCall& call) {
  Visit& visit = *call.visit;
  if (visit.ended) return std::nullopt;
  visit.upstream->send(call.sight.rpc.message);
  std::optional<Bytes> result;
  poll_until(kUpstreamNs, [&] {
    while (!result && !visit.replies.empty()) {
      if (word_at(visit.replies.front(), 0) == call.xid()) result = std::move(visit.replies.front());
      visit.replies.pop_front();
    }
    return result || visit.ended || visit.upstream->gone();
  });
  return result;
}

void Responder::write(Visit& visit, Segments& chunk, std::span<const std::byte> bytes) {
  for (rpcrdma::Segment& segment : chunk) {
    segment.length = static_cast<std::uint32_t>(std::min<std::size_t>(segment.length, bytes.size()));
    if (segment.length == 0) continue;
    write(visit, segment, bytes.first(segment.length));
    bytes = bytes.subspan(segment.length);
  }
}

void Responder::write(Visit& visit, const rpcrdma::Segment& segment, std::span<const std::byte> bytes) {
  visit.end->write_remote(segment, bytes);
  ++visit.posted;
}

std::span<const std::byte> Responder::read(Visit& visit, const rpcrdma::Segment& segment) {
  ++visit.posted;
  return visit.end->read_remote(segment, segment.length);
}

void Responder::answer(const WaitingCall& call, std::span<const std::byte> reply, const Manner& manner) {
  Visit& visit = *call.visit;
  if (visit.ended) return;
  const std::uint32_t granted = manner.grant.value_or(grant_);
  RawCall header{.xid = call.xid(),
                 .credits = granted,
                 .writes = call.message.header.writes,
                 .reply = call.message.header.reply};
  PlacedReply placed = place_results(call.sight.rpc, reply, header.writes.size());
  if (manner.padded_results)
    for (Bytes& result : placed.results) result.resize(padded(result.size()));
  for (std::size_t i = 0; i < header.writes.size(); ++i) {
    const std::span<const std::byte> result = i < placed.results.size()
                                                  ? std::span<const std::byte>(placed.results[i])
                                                  : std::span<const std::byte>{};
    if (result.size() > bytes_in(header.writes[i])) return refuse(call, kErrChunk);
    write(visit, header.writes[i], result);
  }
  if (visit.talk.version == 2)
    reply_version_2(
        call, {.xid = call.xid(), .flags = v2::kResponse, .writes = header.writes, .reply = header.reply},
        placed.payload, manner);
  else
    reply_version_1(call, std::move(header), placed.payload, manner);
  settle(visit);
}

void Responder::reply_version_1(const WaitingCall& call, RawCall header, std::span<const std::byte> payload,
                                const Manner& manner) {
  Visit& visit = *call.visit;
  const bool fits = header.header().size() + payload.size() <= visit.talk.client_receive_bytes();
  const bool in_chunk = header.reply && (!fits || manner.always_reply_chunk);
  if (in_chunk ? payload.size() > bytes_in(*header.reply) : !fits) return refuse(call, kErrChunk);
  if (header.reply) write(visit, *header.reply, in_chunk ? payload : std::span<const std::byte>{});
  header.proc = in_chunk ? 1 : 0;
  judge_.answered(visit.talk, call.xid(), header.credits);
  send(visit, in_chunk ? header.header() : header.with(payload), manner.invalidate);
}

void Responder::serve(const WaitingCall& call, const Manner& manner) {
  ++served_;
  if (const auto result = result_of(call)) answer(call, *result, manner);
}

void Responder::answer_as_it_is(const WaitingCall& call, std::span<const std::byte> message,
                                rdma::Rkey invalidate) {
  if (call.visit->ended) return;
  judge_.answered(call.visit->talk, call.xid(), grant_);
  send(*call.visit, message, invalidate);
  settle(*call.visit);
}

void Responder::refuse(const WaitingCall& call, std::uint32_t code,
                       std::initializer_list<std::uint32_t> more) {
  if (call.visit->ended) return;
  judge_.answered(call.visit->talk, call.xid(), grant_);
  error(*call.visit, call.message.header, code, more);
  settle(*call.visit);
}

void Responder::error(Visit& visit, const RawCall& header, std::uint32_t code,
                      std::initializer_list<std::uint32_t> more) {
  if (visit.talk.version == 2 && code != kErrVers) {
    Bytes message = words({header.xid, 2, grant_ << 16, v2::kError, v2::kResponse, code});
    append(message, words(more));
    return send(visit, message);
  }
  // In version 2 it has the same form (D2-01).
  Bytes message = words({header.xid, header.version, grant_, 4, code});
  const bool fixed = visit.talk.version == 2 && visit.talk.v2.has_granted();
  if (code == kErrVers) append(message, words({fixed ? 2u : 1u, judge_.version()}));
  send(visit, message);
}

void Responder::send(Visit& visit, std::span<const std::byte> message, rdma::Rkey invalidate) {
  if (visit.talk.version == 2) return visit.outbox.push_back({{message.begin(), message.end()}, invalidate});
  judge_.sent(visit.talk, message);
  visit.end->send(message, invalidate);
  ++visit.posted;
}

bool Responder::settle(Visit& visit) {
  poll_until(transfer_ns_,
             [&] { return visit.ended || (visit.posted == 0 && visit.outbox.empty()) || visit.end->failed; });
  // A client that grants no credits would never have the rest.
  if (!visit.ended && (visit.end->failed || !visit.outbox.empty())) hang_up(visit);
  return !visit.ended && visit.posted == 0;
}

void Responder::hang_up(Visit& visit) {
  if (visit.ended) return;
  judge_.note("the responder ends connection " + std::to_string(visit.talk.number));
  manager_.disconnect(visit.id);
  poll_until(kFarewellNs, [&] { return visit.ended; });
  end(visit);
}

}  // namespace sluice::conformance
