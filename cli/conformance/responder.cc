// SPDX-License-Identifier: Apache-2.0
//
// Connections of the responder and the messages that arrive on them, in both versions.
#include "cli/conformance/responder.h"

#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cli/conformance/judge.h"
#include "cli/conformance/link.h"
#include "cli/conformance/v2_calls.h"
#include "cli/conformance/visit.h"
#include "dataplane/rpcrdma/link/config.h"
#include "pmd/device.h"

namespace sluice::conformance {
namespace {

/// Size of a Receive. It exceeds the size announced to the client, so that a message that is too long is
/// detected.
constexpr std::uint32_t kReceiveRoom = 8192;
constexpr std::uint32_t kResponderReceives = 128;
constexpr std::size_t kConnections = 8;
/// Upper bound on the bytes of all Read chunks of a call, or of its results. The memory of the endpoint holds
/// them twice.
constexpr std::uint64_t kMostChunkBytes = 2u << 20;
constexpr std::uint64_t kUpstreamNs = 30'000'000'000;

}  // namespace

/// Upstreams and endpoints for new connections.
struct Responder::Supply {
  MakeUpstream make_upstream;
  std::vector<std::unique_ptr<RawEndpoint>> spare{};
};

Responder::Responder(rdma::Device& device, rdma::ConnectionManager& manager, Judge& judge,
                     const MakeUpstream& make_upstream, const ResponderConfig& config)
    : device_(device),
      manager_(manager),
      judge_(judge),
      grant_(config.grant),
      receive_bytes_(config.receive_bytes),
      transfer_ns_(config.transfer_ns),
      announcement_(usual_announcement()) {
  manager_.listen(config.port);
  supply_ = Owned<Supply>(new Supply{.make_upstream = make_upstream});
}

Responder::~Responder() {
  clear_first_answer();
  for (const auto& visit : std::vector(visits_)) hang_up(*visit);
}

void Responder::poll() {
  rdma::WorkCompletion completions[32];
  const std::size_t count = device_.poll(completions);
  for (const rdma::WorkCompletion& wc : std::span(completions, count))
    for (const auto& visit : visits_)
      if (RawEndpoint& end = *served(*visit).end; end.owned_qp->number() == wc.qp) end.take(wc);
  if (turns_++ % kTurnsPerManager == 0) poll_manager();
  for (const auto& visit : std::vector(visits_)) look_at(*visit);
  other_side();
}

void Responder::turn() {
  poll();
  for (const auto& visit : std::vector(visits_)) {
    ServedVisit& own = served(*visit);
    if (!own.ended && (own.end->failed || own.upstream->gone())) hang_up(own);
    while (!own.calls.empty() && !own.ended) {
      ClientMessage message = std::move(own.calls.front());
      own.calls.pop_front();
      take_call(visit, std::move(message));
    }
  }
}

bool Responder::wait(std::uint64_t limit_ns, FunctionRef<bool()> done) {
  const std::uint64_t end = now_ns() + limit_ns;
  while (!done()) {
    if (now_ns() > end) return false;
    turn();
  }
  return true;
}

bool Responder::poll_until(std::uint64_t limit_ns, FunctionRef<bool()> done) {
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
      if (served(*visit).id == event.id) end(*visit);
  }
}

void Responder::accept(const rdma::CmEvent& event) {
  if (visits_.size() == kConnections) return manager_.reject(event.id, {});
  std::unique_ptr<RawEndpoint> own;
  if (supply_->spare.empty()) {
    own = std::make_unique<RawEndpoint>(device_, kReceiveRoom, kResponderReceives);
  } else {
    own = std::move(supply_->spare.back());
    supply_->spare.pop_back();
  }
  auto* const visit = new ServedVisit(std::move(own));
  const VisitRef reference(*visit);
  visit->id = event.id;
  visit->upstream = supply_->make_upstream();
  visit->end->owned_qp = visit->end->make_queue_pair();
  visit->talk.number = ++connections_seen_;
  visit->talk.version = judge_.version();
  visit->talk.receive_bytes = receive_bytes_ != 0 ? receive_bytes_ : rpcrdma::kDefaultInlineBytes;
  const auto data =
      rpcrdma::encode_private_data({.send_bytes = receive_bytes_, .receive_bytes = receive_bytes_});
  visits_.push_back(reference);
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
  ServedVisit& own = served(visit);
  own.end->owned_qp.reset();
  own.end->forget();
  supply_->spare.push_back(std::move(own.end));
  std::erase_if(waiting_, [&](const WaitingCall& call) { return call.visit == &visit; });
  std::erase_if(visits_, [&](const VisitRef& other) { return other == &visit; });
}

void Responder::look_at(Visit& visit) {
  if (visit.ended) return;
  ServedVisit& own = served(visit);
  for (const rdma::WorkCompletion& wc : own.end->send_completions) {
    --own.posted;
    if (!visit.unjudged) judge_.transferred(visit.talk, wc.opcode, wc.status);
  }
  own.end->send_completions.clear();
  for (Received& received : std::exchange(own.end->inbox, {}))
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
  if (message.is_call()) return served(visit).calls.push_back(std::move(message));
  if (message.is_reply()) {
    if (std::erase(served(visit).reverse, message.header.xid) != 0)
      served(visit).upstream->send(message.payload());
    return;
  }
  if (message.bytes.size() < 16 || message.header.proc == 3 || message.header.proc == 4) return;
  error(visit, message.header, message.header.version == 1 ? kErrChunk : kErrVers);
}

void Responder::take_from_upstream(Visit& visit) {
  ServedVisit& own = served(visit);
  while (auto message = own.upstream->receive()) {
    if (word_at(*message, 1) == 1) {
      own.replies.push_back(std::move(*message));
      continue;
    }
    const std::uint32_t xid = word_at(*message, 0);
    const Bytes call = visit.talk.version == 2 ? v2::Header{.xid = xid}.with(*message)
                                               : RawCall{.xid = xid, .credits = grant_}.with(*message);
    if (call.size() <= visit.talk.client_receive_bytes()) send(visit, call);
    own.reverse.push_back(xid);
  }
}

void Responder::take_call(const VisitRef& visit, ClientMessage message) {
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
      changed |= std::memcmp(twice[0][at].data(), twice[1][at].data(), twice[0][at].size()) != 0;
    }
  return true;
}

WaitingCall Responder::take(std::size_t index) {
  WaitingCall call = std::move(waiting_[index]);
  waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(index));
  return call;
}

std::optional<Bytes> Responder::result_of(const WaitingCall& call) {
  ServedVisit& visit = served(*call.visit);
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

bool Responder::settle(Visit& visit) {
  ServedVisit& own = served(visit);
  poll_until(transfer_ns_,
             [&] { return own.ended || (own.posted == 0 && own.outbox.empty()) || own.end->failed; });
  // A client that grants no credits would never receive the rest.
  if (!own.ended && (own.end->failed || !own.outbox.empty())) hang_up(own);
  return !own.ended && own.posted == 0;
}

void Responder::hang_up(Visit& visit) {
  if (visit.ended) return;
  judge_.note("the responder ends connection " + std::to_string(visit.talk.number));
  manager_.disconnect(served(visit).id);
  poll_until(kFarewellNs, [&] { return visit.ended; });
  end(visit);
}

// --- Version 2

/// Reports whether the connection changes to version 1. A client may begin with version 1, or continue with
/// it after version 2 was refused.
bool Responder::turns_to_version_1(const Visit& visit, std::span<const std::byte> message) {
  const Version2Conversation& talk = visit.talk.v2;
  return visit.talk.version == 2 && word_at(message, 1) == 1 && !talk.has_granted() &&
         (talk.messages() == 0 || talk.errors_sent() > 0);
}

/// Returns the code of the ERROR that answers a message other than a reply, or zero if the message has no
/// defect.
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
    if (first_answer_) return (*first_answer_)(visit, message);
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
  if (whole->is_call()) return served(visit).calls.push_back(std::move(*whole));
  if (std::erase(served(visit).reverse, whole->header.xid) != 0)
    served(visit).upstream->send(whole->payload());
}

}  // namespace sluice::conformance
