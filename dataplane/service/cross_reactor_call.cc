// SPDX-License-Identifier: Apache-2.0
#include "dataplane/service/cross_reactor_call.h"

#include <utility>

#include "dataplane/base/invariant.h"
#include "dataplane/base/small_algorithms.h"

namespace sluice::service {

// --- Caller

void RemoteCall::reset(ShareAccount& account) noexcept {
  account_ = &account;
  first_ = true;
}

void RemoteCall::ask(Call& call, Service& service, RemoteStep step) noexcept {
  SLUICE_INVARIANT_DEBUG(account_ != nullptr && (first_ || call_ == &call), handover_ticket);
  call_ = &call;
  const std::span<const std::byte> arguments = call.arguments();
  request_ = {.service = &service,
              .message = call.message().data(),
              .arguments = arguments.data(),
              .message_bytes = static_cast<std::uint32_t>(call.message().size()),
              .argument_bytes = static_cast<std::uint32_t>(arguments.size()),
              .offered_results = call.offered_results(),
              .placed_bytes = call.placed_bytes(),
              .step = step,
              .first = first_,
              .has_host = !call.peer_host().empty()};
  set_results_room_of(call);
  if (!std::exchange(first_, false)) return;
  const rpc::CallHeader& header = call.header();
  header_line_ = {.credential = header.credential.body.data(),
                  .verifier = header.verifier.body.data(),
                  .credential_flavor = header.credential.flavor,
                  .verifier_flavor = header.verifier.flavor,
                  .credential_bytes = static_cast<std::uint16_t>(header.credential.body.size()),
                  .verifier_bytes = static_cast<std::uint16_t>(header.verifier.body.size()),
                  .xid = header.xid,
                  .program = header.program,
                  .version = header.version,
                  .procedure = header.procedure,
                  .peer = call.peer()};
  if (request_.has_host) host_ = call.peer_host();
}

/// Offers the room that the caller's call has for results, in which nothing is written yet.
void RemoteCall::set_results_room_of(const Call& call) noexcept {
  const RoomForResults room = room_of(call);
  request_.results = room.room.data();
  request_.results_bytes = static_cast<std::uint32_t>(room.room.size());
  request_.results_offset = room.offset;
}

void RemoteCall::ask_release() noexcept {
  SLUICE_INVARIANT_DEBUG(call_ != nullptr, handover_ticket);
  call_ = nullptr;
  request_.step = RemoteStep::Release;
}

void RemoteCall::ask_again() noexcept {
  request_.first = false;  // the service may have state by now
  set_results_room_of(*call_);
}

template <typename Translate>
RemoteResult RemoteCall::give_back(const Translate& lkey_of) noexcept {
  SLUICE_INVARIANT_DEBUG(call_ != nullptr && result_.answer != RemoteAnswer::Released, handover_ticket);
  copy_pieces_to(*call_, result_.first_pieces, result_.pieces, result_.items, lkey_of);
  if (result_.answer == RemoteAnswer::Completed) {
    // A whole reply begins before the room for results.
    const std::uint32_t ahead = request_.results_offset - result_.results_offset;
    xdr::Writer results({request_.results - ahead, std::size_t{request_.results_bytes} + ahead});
    results.rewind(result_.results_bytes);
    if (result_.results_failed) results.fail();
    set_results(*call_, results, result_.results_offset);
  }
  return result_;
}

// --- Owner

/// Takes over what the caller says about this step.
void RemoteCall::read_request() noexcept {
  own_answer_ = RemoteAnswer::None;
  auth_error_ = rpc::AuthStat::Ok;
  message_ = {request_.message, request_.message_bytes};
  arguments_ = {request_.arguments, request_.argument_bytes};
  offered_results_ = request_.offered_results;
  placed_bytes_ = request_.placed_bytes;
  results_ = xdr::Writer({request_.results, request_.results_bytes});
  results_offset_ = request_.results_offset;
  if (!request_.first) return;
  has_state_ = false;
  piece_count_ = item_count_ = 0;
  const RemoteHeader& header = header_line_;
  header_ = {.xid = header.xid,
             .program = header.program,
             .version = header.version,
             .procedure = header.procedure,
             .credential = {header.credential_flavor, {header.credential, header.credential_bytes}},
             .verifier = {header.verifier_flavor, {header.verifier, header.verifier_bytes}}};
  own_peer_ = header.peer;
  if (request_.has_host)
    own_peer_host_ = host_;
  else if (!own_peer_host_.empty())
    own_peer_host_ = {};
}

/// Records the first answer, which may arrive within serve() or later from the service.
void RemoteCall::set_answer(RemoteAnswer answer) noexcept {
  if (own_answer_ != RemoteAnswer::None) return;
  own_answer_ = answer;
  if (!serving_) send_answer();
}

void RemoteCall::send_answer() noexcept {
  SLUICE_INVARIANT_DEBUG(results_offset_ <= request_.results_offset, buffer_bounds);
  result_.answer = own_answer_;
  result_.results_bytes = static_cast<std::uint32_t>(results_.position());
  result_.results_failed = !results_.ok();
  result_.results_offset = results_offset_;
  result_.auth_error = static_cast<std::uint16_t>(auth_error_);
  // Without items a complete reply has no pieces. Those of a sink are no longer needed.
  const bool named = own_answer_ != RemoteAnswer::Completed || item_count_ > 0;
  result_.pieces = static_cast<std::uint8_t>(named ? piece_count_ : 0);
  result_.items = static_cast<std::uint8_t>(item_count_);
  for (std::size_t i = 0; i < smaller_of<std::size_t>(result_.pieces, RemoteResult::kPieces); ++i)
    result_.first_pieces[i] = own_storage_.pieces[i];
  rings_->to_caller(*this);
}

void RemoteCall::on_complete(Call&, rpc::AcceptStat stat) noexcept {
  if (own_answer_ == RemoteAnswer::None) result_.stat = stat;
  set_answer(RemoteAnswer::Completed);
}

/// The caller provides the room. The call is answered with NeedsMemory and executed again when it has room.
bool RemoteCall::on_grow_results(Call&, std::size_t bytes) noexcept {
  result_.wanted_bytes = bytes;
  return false;
}

void RemoteCall::on_placed(Call&, Placement placement) noexcept {
  if (own_answer_ == RemoteAnswer::None) result_.placement = placement;
  set_answer(RemoteAnswer::Placed);
}

void RemoteCall::on_await_memory(Call&) noexcept {
  set_answer(RemoteAnswer::NeedsMemory);
}

void RemoteCall::serve() noexcept {
  SLUICE_INVARIANT_DEBUG(!serving_ && rings_ != nullptr, handover_ticket);
  const RemoteStep step = request_.step;
  Service& service = *request_.service;
  if (step != RemoteStep::Release) read_request();
  result_.released = false;
  serving_ = true;
  switch (step) {
    case RemoteStep::Place:
      if (const Placement placement = service.place(*this); placement != Placement::Later)
        on_placed(*this, placement);
      break;
    case RemoteStep::Execute:
      if (service.execute(*this) == Execution::NeedsMemory) set_answer(RemoteAnswer::NeedsMemory);
      break;
    case RemoteStep::Release:
      service.release(*this);
      own_answer_ = RemoteAnswer::Released;
      break;
  }
  serving_ = false;
  // A reply without items does not use the service's memory, so the release need not cross.
  if (own_answer_ == RemoteAnswer::Completed && item_count_ == 0) {
    service.release(*this);
    result_.released = true;
  }
  if (own_answer_ != RemoteAnswer::None) send_answer();
}

// --- The rings

namespace {

/// Guarantees half of the tickets to clients, in equal parts. No client holds more than a quarter of all
/// tickets, unless more is guaranteed.
ShareLimits limits_for(std::uint32_t clients) noexcept {
  const std::uint32_t guaranteed = kMaxRemoteCalls / 2 / larger_of(clients, 1u);
  return {.elements = kMaxRemoteCalls,
          .accounts = clients,
          .guaranteed = guaranteed,
          .most = larger_of(guaranteed, kMaxRemoteCalls / 4)};
}

}  // namespace

CrossReactorCall::CrossReactorCall(std::vector<KeyPair> keys, std::uint32_t clients)
    : keys_(std::move(keys)),
      to_owner_(make_owned<CallRing>()),
      to_caller_(make_owned<CallRing>()),
      calls_(kMaxRemoteCalls),
      tickets_(limits_for(clients)),
      shares_(clients) {
  for (std::uint32_t i = 0; i < clients; ++i) shares_[i].rings = this;
  free_.reserve(kMaxRemoteCalls);
  for (std::uint32_t i = kMaxRemoteCalls; i-- > 0;) {
    calls_[i].set_rings(*this);
    free_.push_back(&calls_[i]);
  }
}

void CrossReactorCall::release(RemoteCall& remote) noexcept {
  SLUICE_INVARIANT_DEBUG(free_.size() < kMaxRemoteCalls, pool_balance);
  free_.push_back(&remote);
  tickets_.give_back(remote.account());
}

rdma::Lkey CrossReactorCall::callers_key(rdma::Lkey owners) const noexcept {
  if (keys_.empty()) return owners;
  for (const KeyPair& pair : keys_)
    if (pair.owner == owners) return pair.caller;
  return {};  // the device rejects a zero key
}

bool CrossReactorCall::serve() noexcept {
  RemoteCall* remote = nullptr;
  std::uint32_t count = 0;
  for (; count < kRemoteCallsPerPoll && to_owner_->pop(remote); ++count) remote->serve();
  return count > 0;
}

bool CrossReactorCall::collect() noexcept {
  RemoteCall* remote = nullptr;
  std::uint32_t count = 0;
  for (; count < kRemoteCallsPerPoll && to_caller_->pop(remote); ++count) resume(*remote);
  if (tickets_.waiters() > 0) tickets_.resume(kRemoteCallsPerPoll);
  return count > 0;
}

void CrossReactorCall::resume(RemoteCall& remote) noexcept {
  if (!SLUICE_INVARIANT(remote.answer() != RemoteAnswer::None, handover_ticket)) return;
  if (remote.answer() == RemoteAnswer::Released) return release(remote);
  Call& call = remote.callers_call();
  const RemoteResult result = remote.give_back([this](rdma::Lkey key) { return callers_key(key); });
  switch (result.answer) {
    case RemoteAnswer::Completed:
      if (result.released) {
        call.state<CallTicket>().remote = nullptr;
        release(remote);
      }
      if (const auto denied = static_cast<rpc::AuthStat>(result.auth_error); denied != rpc::AuthStat::Ok)
        return call.deny(denied);
      return call.complete(result.stat);
    case RemoteAnswer::Placed:
      return call.placed(result.placement);
    case RemoteAnswer::NeedsMemory:
      if (!call.require_results(result.wanted_bytes)) return call.await_memory();
      remote.ask_again();
      return to_owner(remote);
    case RemoteAnswer::None:
    case RemoteAnswer::Released:
      return;
  }
}

// --- Shares of the caller's clients

void CrossReactorCall::submit(Call& call, Service& service, RemoteStep step) noexcept {
  auto& ticket = call.state<CallTicket>();
  ticket.call = &call;
  ticket.service = &service;
  ticket.step = step;
  ClientShare& share = share_of(call);
  const bool may_send = ticket.remote != nullptr || share.first == nullptr;
  if (may_send && (ticket.remote != nullptr || tickets_.take(share.account))) return send(ticket, share);
  ++waits_;
  push_waiting(share, ticket);
  tickets_.await(share.account, share);
}

/// Sends the call to the owner. A ticket of the account must have been taken unless the call already has one.
void CrossReactorCall::send(CallTicket& ticket, ClientShare& share) noexcept {
  if (ticket.remote == nullptr) {
    SLUICE_INVARIANT_DEBUG(!free_.empty(), pool_balance);
    ticket.remote = free_.back();
    free_.pop_back();
    ticket.remote->reset(share.account);
  }
  ticket.remote->ask(*ticket.call, *ticket.service, ticket.step);
  to_owner(*ticket.remote);
}

void CrossReactorCall::serve_waiting(ClientShare& share) noexcept {
  if (!SLUICE_INVARIANT(share.first != nullptr, handover_ticket) || !tickets_.take(share.account)) return;
  CallTicket& ticket = *share.first;
  remove_waiting(share, ticket);
  if (share.first != nullptr) tickets_.await(share.account, share);
  send(ticket, share);
}

void CrossReactorCall::push_waiting(ClientShare& share, CallTicket& ticket) noexcept {
  SLUICE_INVARIANT_DEBUG(!ticket.waiting && (share.first == nullptr) == (share.last == nullptr),
                         list_membership);
  ticket.waiting = true;
  ticket.next = nullptr;
  ticket.previous = share.last;
  (share.last != nullptr ? share.last->next : share.first) = &ticket;
  share.last = &ticket;
  ++waiting_;
}

void CrossReactorCall::remove_waiting(ClientShare& share, CallTicket& ticket) noexcept {
  SLUICE_INVARIANT_DEBUG(ticket.waiting && waiting_ > 0 && share.first != nullptr, list_membership);
  ticket.waiting = false;
  (ticket.previous != nullptr ? ticket.previous->next : share.first) = ticket.next;
  (ticket.next != nullptr ? ticket.next->previous : share.last) = ticket.previous;
  --waiting_;
}

/// Releases the ticket of a call that has ended.
void CrossReactorCall::withdraw(Call& call) noexcept {
  auto& ticket = call.state<CallTicket>();
  if (ticket.waiting) {
    ClientShare& share = share_of(call);
    remove_waiting(share, ticket);
    if (share.first == nullptr) tickets_.forget(share.account, share);
  } else if (ticket.remote != nullptr) {
    ticket.remote->ask_release();
    to_owner(*ticket.remote);
  }
}

/// Ends the calls of a closed connection that wait for a ticket. Calls at the owner return later.
void CrossReactorCall::client_gone(const Client& client) noexcept {
  ClientShare& share = shares_[client.number()];
  while (share.first != nullptr) {
    Call& call = *share.first->call;
    remove_waiting(share, *share.first);
    call.complete(rpc::AcceptStat::SystemErr);
  }
  tickets_.forget_all(share.account);
  static_cast<void>(SLUICE_INVARIANT(share.first == nullptr && share.last == nullptr, list_membership));
}

Placement RemoteService::place(Call& call) noexcept {
  rings_.submit(call, real_, RemoteStep::Place);
  return Placement::Later;
}

Execution RemoteService::execute(Call& call) noexcept {
  rings_.submit(call, real_, RemoteStep::Execute);
  return Execution::Started;
}

void RemoteService::release(Call& call) noexcept {
  rings_.withdraw(call);
}

void RemoteService::client_gone(Client& client) noexcept {
  rings_.client_gone(client);
}

}  // namespace sluice::service
