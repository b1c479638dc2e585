// SPDX-License-Identifier: Apache-2.0
#include "dataplane/gateway/rdma_server/server_connection.h"

#include <utility>

#include "dataplane/base/invariant.h"
#include "dataplane/base/small_algorithms.h"
#include "dataplane/gateway/rdma_server/server_side.h"

namespace sluice::rdma_server {
namespace {

constexpr std::uint32_t kWindowsPerCall = 2;
/// Requests reserved for probes of a silent server.
constexpr std::uint32_t kRequestsForProbes = 1;

rpcrdma::RequesterConfig requester_config(const ServerSide& side) {
  const ServerSideConfig& config = side.config();
  return {.requests = config.calls,
          .inline_bytes = config.inline_bytes,
          .credits_requested = config.calls,
          .windows = kWindowsPerCall * config.calls,
          .domain = side.domain(),
          .pool_buffer_bytes = config.pool_segment_bytes,
          .pool_buffers = config.pool_segment_bytes > 0 ? config.calls : 0,
          .long_buffers = kLongBuffers,
          .long_buffer_bytes = config.record_bytes(),
          .short_reply_buffers = config.calls,
          .short_reply_bytes = kShortReplyBytes,
          .keep_xids = true,
          .spare_credit = true};
}

}  // namespace

bool is_answer(rpcrdma::CallStatus status) noexcept {
  switch (status) {
    case rpcrdma::CallStatus::Ok:
    case rpcrdma::CallStatus::ChunkError:
    case rpcrdma::CallStatus::Refused:
    case rpcrdma::CallStatus::VersionError:
    case rpcrdma::CallStatus::UnusableReply:
      return true;
    case rpcrdma::CallStatus::TooLarge:
    case rpcrdma::CallStatus::TimedOut:
    case rpcrdma::CallStatus::Cancelled:
    case rpcrdma::CallStatus::ConnectionLost:
      return false;
  }
  return false;
}

ServerConnection::ServerConnection(ServerSide& side, rpcrdma::Engine& engine)
    : side_(side),
      requester_(engine.requester_context(), engine.device(), requester_config(side)),
      calls_(side.config().calls),
      small_replies_(decltype(small_replies_)::for_overwrite(side.config().calls)),
      xids_(side.config().calls) {
  for (std::uint32_t i = 0; i < calls_.size(); ++i) {
    calls_[i].server = this;
    calls_[i].index = i;
    calls_[i].small = &small_replies_[i];
    free_.push_back(calls_[i]);
  }
}

// --- Assignment to a client

void ServerConnection::assign(ServerUser& client) noexcept {
  gateway::change_state(kServerConnectionTransitions, state_, State::Assigned);
  static_cast<void>(SLUICE_INVARIANT(client_ == nullptr && in_use_ == 0, pool_balance));
  static_cast<void>(SLUICE_INVARIANT(!requester_.attached() && connection_ == nullptr, gateway_state));
  client_ = &client;
  lent_ns_ = side_.now_ns();
  yields_ = moves_ = cancelled_ = false;
  silence_.heard(lent_ns_);
  connected_ns_ = answered_ns_ = 0;
  dial_after_ns_ = kFirstDialNs;
  dial();
}

void ServerConnection::cancel_calls() noexcept {
  cancelled_ = true;
  requester_.cancel_all();
  hang_up(rpcrdma::CloseReason::LocalClose);
}

void ServerConnection::take_back() noexcept {
  gateway::change_state(kServerConnectionTransitions, state_, State::Returned);
  static_cast<void>(SLUICE_INVARIANT(in_use_ == 0 && !idle_link.linked(), pool_balance));
  client_ = nullptr;
  cancel_calls();  // a NULL probe may be outstanding
}

bool ServerConnection::become_free() noexcept {
  if (requester_.attached()) return false;
  gateway::change_state(kServerConnectionTransitions, state_, State::Free);
  static_cast<void>(SLUICE_INVARIANT(in_use_ == 0 && requester_.outstanding() == 0, pool_balance));
  return true;
}

// --- The connection

void ServerConnection::dial() noexcept {
  static_cast<void>(SLUICE_INVARIANT(connection_ == nullptr && !requester_.attached(), gateway_state));
  rpcrdma::Connection* const connection = side_.dial(*this, requester_);
  dial_ns_ = side_.now_ns() + dial_after_ns_;
  dial_after_ns_ = smaller_of(2 * dial_after_ns_, kLastDialNs);
  if (connection == nullptr) return;
  connection_ = connection;
  ++dials_;
}

void ServerConnection::hang_up(rpcrdma::CloseReason reason) noexcept {
  if (connection_ == nullptr || !requester_.attached() || std::exchange(hanging_up_, true)) return;
  side_.hang_up(*connection_, reason);
}

void ServerConnection::move() noexcept {
  if (state_ != State::Assigned || !requester_.attached()) return;
  if (!requester_.connected()) return hang_up(rpcrdma::CloseReason::LocalClose);
  if (!std::exchange(moves_, true)) moves_until_ns_ = side_.now_ns() + kMoveNs;
}

void ServerConnection::tick(std::uint64_t now_ns) noexcept {
  if (state_ == State::Free) return;
  requester_.expire(now_ns);
  watch_server(now_ns);
  if (!requester_.connected())
    connected_ns_ = 0;
  else if (connected_ns_ == 0)
    connected_ns_ = now_ns;
  retransmit_overdue(now_ns);
  if (requester_.connected()) dial_after_ns_ = kFirstDialNs;
  if (moves_ && now_ns >= moves_until_ns_) hang_up(rpcrdma::CloseReason::LocalClose);
  if (requester_.attached()) return;
  hanging_up_ = moves_ = false;
  if (connection_ != nullptr) {
    side_.unbind(*std::exchange(connection_, nullptr), *this);
    if (!cancelled_) side_.count(side_.counters().disconnects);
  }
  // A connection that the server has closed is reopened for the next call.
  if (in_use_ > 0 && !cancelled_ && now_ns >= dial_ns_) dial();
}

void ServerConnection::watch_server(std::uint64_t now_ns) noexcept {
  if (!requester_.connected() || requester_.outstanding() == 0) return silence_.restart(now_ns);
  switch (silence_.next(now_ns, probing_ && requester_.is_outstanding(rpc::Xid{probe_xid_}))) {
    case LivenessTimer::Step::Wait:
      return;
    case LivenessTimer::Step::Probe:
      return probe();
    case LivenessTimer::Step::Reconnect:
      side_.count(side_.counters().resets);
      return reconnect();
  }
}

/// Replaces the connection if the server has answered other calls but not a call whose retransmission timer
/// has expired. All outstanding calls are retransmitted on the next connection.
void ServerConnection::retransmit_overdue(std::uint64_t now_ns) noexcept {
  if (connected_ns_ == 0 || in_use_ == 0 || hanging_up_ || now_ns < look_at_calls_ns_) return;
  look_at_calls_ns_ = now_ns + kRetransmissionTickNs;
  bool expired = false;
  for (ClientCall& call : calls_) {
    const std::uint64_t sent_ns = larger_of(call.begun_ns, connected_ns_);
    if (call.state != ClientCall::State::Outstanding || answered_ns_ <= sent_ns || now_ns <= sent_ns)
      continue;
    const bool likely = call.repeated || dials_ > call.first_dial;
    if (!call.retransmission.expired(now_ns - sent_ns,
                                     likely ? gateway::Loss::Likely : gateway::Loss::Unlikely))
      continue;
    call.retransmission.back_off();
    side_.count(side_.counters().retransmissions);
    expired = true;
  }
  if (expired) reconnect();
}

/// Sends a NULL call to the program of an outstanding call.
void ServerConnection::probe() noexcept {
  const ClientCall* const waiting = first_match(
      calls_, [](const ClientCall& call) { return call.state == ClientCall::State::Outstanding; });
  if (waiting == nullptr || probing_) return;
  constexpr std::uint32_t kFarAway = 1u << 31;  // clients increment their XIDs
  probe_xid_ = waiting->xid + kFarAway;
  while (is_outstanding(probe_xid_)) ++probe_xid_;
  std::array<std::byte, rpc::kMinCallBytes> message;
  xdr::Writer writer(message);
  rpc::CallHeader header;
  header.xid = rpc::Xid{probe_xid_};
  header.program = waiting->program;
  header.version = waiting->version;
  rpc::encode_call(writer, header);
  side_.count(side_.counters().probes);
  probing_ = true;
  if (!requester_.submit({.payload = message,
                          .max_reply_bytes = rpc::kMinReplyBytes + rpc::kMaxAuthBytes,
                          .send_once = true,
                          .urgent = true,
                          .completion = &probed,
                          .context = this}))
    probing_ = false;
}

void ServerConnection::probed(void* context, const rpcrdma::Reply& reply) noexcept {
  auto& connection = *static_cast<ServerConnection*>(context);
  static_cast<void>(SLUICE_INVARIANT(connection.probing_, gateway_state));
  connection.probing_ = false;
  if (is_answer(reply.status())) connection.note_answer();
}

/// Closes the connection. The requester retransmits the outstanding calls on the next one.
void ServerConnection::reconnect() noexcept {
  if (probing_) requester_.cancel(rpc::Xid{probe_xid_});
  hang_up(rpcrdma::CloseReason::Silent);
}

void ServerConnection::note_answer() noexcept {
  answered_ns_ = side_.now_ns();
  silence_.heard(answered_ns_);
}

// --- Calls

ClientCall* ServerConnection::find(std::uint32_t xid) noexcept {
  for (std::size_t i = 0; i < xids_.size(); ++i)
    if (xids_[i] == xid && calls_[i].state == ClientCall::State::Outstanding) return &calls_[i];
  return nullptr;
}

bool ServerConnection::note_repetition(std::uint32_t xid) noexcept {
  ClientCall* const call = find(xid);
  if (call != nullptr) call->repeated = true;
  return call != nullptr;
}

ClientCall* ServerConnection::take_call(std::uint32_t xid) noexcept {
  if (requester_.free_requests() <= kRequestsForProbes || (probing_ && xid == probe_xid_)) return nullptr;
  ClientCall* const call = free_.pop_front();
  if (call == nullptr) return nullptr;
  SLUICE_INVARIANT_DEBUG(state_ == State::Assigned && in_use_ < calls_.size(), pool_balance);
  SLUICE_INVARIANT_DEBUG(call->arguments.address == nullptr && call->reply.address == nullptr, pool_balance);
  SLUICE_INVARIANT_DEBUG(call->kept_reply == nullptr && call->server == this, pool_balance);
  if (in_use_++ == 0) side_.connections().on_busy(*this);
  call->transition(ClientCall::State::Outstanding);
  call->xid = xids_[call->index] = xid;
  call->submitting = call->refused = call->repeated = false;
  call->retransmission = {};
  call->first_dial = requester_.attached() ? dials_ : dials_ + 1;
  call->all_chunks_bytes = call->chunk_count = call->item_count = 0;
  call->names_items = false;
  call->served = nullptr;
  call->begun_ns = side_.now_ns();
  return call;
}

bool ServerConnection::submit(ClientCall& call, rpcrdma::Request request) noexcept {
  SLUICE_INVARIANT_DEBUG(call.server == this && !call.submitting, gateway_state);
  request.completion = &completed;
  request.context = &call;
  call.submitting = true;
  const bool submitted = requester_.submit(request).has_value();
  call.submitting = false;
  if (submitted) side_.count(side_.counters().calls);
  return submitted;
}

void ServerConnection::completed(void* context, const rpcrdma::Reply& reply) noexcept {
  auto& call = *static_cast<ClientCall*>(context);
  SLUICE_INVARIANT_DEBUG(call.state == ClientCall::State::Outstanding, gateway_state);
  if (call.submitting)
    call.refused = true;
  else
    call.server->client()->on_reply(call, reply);
}

bool ServerConnection::keep_reply(ClientCall& call, const rpcrdma::Reply& reply) noexcept {
  SLUICE_INVARIANT_DEBUG(call.kept_reply == nullptr, pool_balance);
  call.kept_reply = requester_.keep_reply(reply);
  return call.kept_reply != nullptr;
}

void ServerConnection::free(ClientCall& call) noexcept {
  SLUICE_INVARIANT_DEBUG(call.server == this && in_use_ > 0, pool_balance);
  SLUICE_INVARIANT_DEBUG(call.arguments.address == nullptr && call.reply.address == nullptr, pool_balance);
  if (call.kept_reply != nullptr) requester_.release_reply(std::exchange(call.kept_reply, nullptr));
  call.transition(ClientCall::State::Free);
  free_.push_front(call);
  if (--in_use_ == 0) side_.connections().on_idle(*this);
  side_.note_release();
}

}  // namespace sluice::rdma_server
