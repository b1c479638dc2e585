// SPDX-License-Identifier: Apache-2.0
#include "dataplane/service/cross_reactor_call.h"

#include <utility>

#include "dataplane/base/invariant.h"
#include "dataplane/base/small_algorithms.h"

namespace sluice::service {

// --- Caller

void RemoteCall::reset(CrossReactorCall& rings, ShareAccount& account) noexcept {
  rings_ = &rings;
  account_ = &account;
  has_state_ = false;
  piece_count_ = item_count_ = 0;
}

void RemoteCall::ask(Call& call, Service& service, Step step) noexcept {
  SLUICE_INVARIANT_DEBUG(rings_ != nullptr && account_ != nullptr, handover_ticket);
  call_ = &call;
  service_ = &service;
  step_ = step;
  answer_ = Answer::None;
  wanted_bytes_ = 0;
  auth_error_ = rpc::AuthStat::Ok;
  copy_request_of(call);
  own_peer_ = call.peer();
  own_peer_host_ = call.peer_host();
}

void RemoteCall::ask_release() noexcept {
  SLUICE_INVARIANT_DEBUG(call_ != nullptr, handover_ticket);
  call_ = nullptr;
  step_ = Step::Release;
  answer_ = Answer::None;
}

void RemoteCall::ask_again() noexcept {
  answer_ = Answer::None;
  copy_results_room_of(*call_);
}

template <typename Translate>
void RemoteCall::give_back(const Translate& lkey_of) noexcept {
  SLUICE_INVARIANT_DEBUG(call_ != nullptr && answer_ != Answer::Released, handover_ticket);
  Call& call = *call_;
  copy_pieces_to(call, lkey_of);
  switch (answer_) {
    case Answer::Completed:
      copy_results_to(call);
      if (auth_error_ != rpc::AuthStat::Ok) return call.deny(auth_error_);
      return call.complete(stat_);
    case Answer::Placed:
      return call.placed(placement_);
    case Answer::NeedsMemory:
      if (!call.require_results(wanted_bytes_)) return call.await_memory();
      ask_again();
      return rings_->to_owner(*this);
    case Answer::None:
    case Answer::Released:
      return;
  }
}

// --- Owner

/// Records the first answer, which may arrive within serve() or later from the service.
void RemoteCall::set_answer(Answer answer) noexcept {
  if (answer_ != Answer::None) return;
  answer_ = answer;
  if (!serving_) rings_->to_caller(*this);
}

void RemoteCall::on_complete(Call&, rpc::AcceptStat stat) noexcept {
  if (answer_ == Answer::None) stat_ = stat;
  set_answer(Answer::Completed);
}

/// The caller provides the room. The call is answered with NeedsMemory and executed again when it has room.
bool RemoteCall::on_grow_results(Call&, std::size_t bytes) noexcept {
  wanted_bytes_ = bytes;
  return false;
}

void RemoteCall::on_placed(Call&, Placement placement) noexcept {
  if (answer_ == Answer::None) placement_ = placement;
  set_answer(Answer::Placed);
}

void RemoteCall::on_await_memory(Call&) noexcept {
  set_answer(Answer::NeedsMemory);
}

void RemoteCall::serve() noexcept {
  SLUICE_INVARIANT_DEBUG(!serving_ && answer_ == Answer::None, handover_ticket);
  serving_ = true;
  switch (step_) {
    case Step::Place:
      if (const Placement placement = service_->place(*this); placement != Placement::Later)
        on_placed(*this, placement);
      break;
    case Step::Execute:
      if (service_->execute(*this) == Execution::NeedsMemory) set_answer(Answer::NeedsMemory);
      break;
    case Step::Release:
      service_->release(*this);
      set_answer(Answer::Released);
      break;
  }
  serving_ = false;
  if (answer_ != Answer::None) rings_->to_caller(*this);
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
  for (std::uint32_t i = kMaxRemoteCalls; i-- > 0;) free_.push_back(&calls_[i]);
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
  if (!SLUICE_INVARIANT(remote.answer() != RemoteCall::Answer::None, handover_ticket)) return;
  if (remote.answer() == RemoteCall::Answer::Released) return release(remote);
  remote.give_back([this](rdma::Lkey key) { return callers_key(key); });
}

// --- Shares of the caller's clients

void CrossReactorCall::submit(Call& call, Service& service, RemoteCall::Step step) noexcept {
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
    ticket.remote->reset(*this, share.account);
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
  rings_.submit(call, real_, RemoteCall::Step::Place);
  return Placement::Later;
}

Execution RemoteService::execute(Call& call) noexcept {
  rings_.submit(call, real_, RemoteCall::Step::Execute);
  return Execution::Started;
}

void RemoteService::release(Call& call) noexcept {
  rings_.withdraw(call);
}

void RemoteService::client_gone(Client& client) noexcept {
  rings_.client_gone(client);
}

}  // namespace sluice::service
