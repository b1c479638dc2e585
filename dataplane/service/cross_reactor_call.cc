// SPDX-License-Identifier: Apache-2.0
#include "dataplane/service/cross_reactor_call.h"

#include <utility>

#include "dataplane/base/invariant.h"
#include "dataplane/base/small_algorithms.h"

namespace sluice::service {

// --- Borrower

void HandedCall::reset(CrossReactorCall& handover, ShareAccount& account) noexcept {
  handover_ = &handover;
  account_ = &account;
  has_state_ = false;
  piece_count_ = item_count_ = 0;
}

void HandedCall::ask(Call& call, Service& service, Step step) noexcept {
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

void HandedCall::ask_release() noexcept {
  call_ = nullptr;
  step_ = Step::Release;
  answer_ = Answer::None;
}

void HandedCall::ask_again() noexcept {
  answer_ = Answer::None;
  copy_results_room_of(*call_);
}

template <typename Translate>
void HandedCall::give_back(const Translate& lkey_of) noexcept {
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
      return handover_->to_owner(*this);
    case Answer::None:
    case Answer::Released:
      return;
  }
}

// --- Owner

/// Records the first answer, which may arrive within serve() or later from the service.
void HandedCall::set_answer(Answer answer) noexcept {
  if (answer_ != Answer::None) return;
  answer_ = answer;
  if (!serving_) handover_->to_borrower(*this);
}

void HandedCall::on_complete(Call&, rpc::AcceptStat stat) noexcept {
  if (answer_ == Answer::None) stat_ = stat;
  set_answer(Answer::Completed);
}

/// The borrower provides the room. The call is answered with NeedsMemory and executed again when it has room.
bool HandedCall::on_grow_results(Call&, std::size_t bytes) noexcept {
  wanted_bytes_ = bytes;
  return false;
}

void HandedCall::on_placed(Call&, Placement placement) noexcept {
  if (answer_ == Answer::None) placement_ = placement;
  set_answer(Answer::Placed);
}

void HandedCall::on_await_memory(Call&) noexcept {
  set_answer(Answer::NeedsMemory);
}

void HandedCall::serve() noexcept {
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
  if (answer_ != Answer::None) handover_->to_borrower(*this);
}

// --- The rings

namespace {

/// Guarantees half of the tickets to clients, in equal parts. No client holds more than a quarter of all
/// tickets, unless more is guaranteed.
ShareLimits limits_for(std::uint32_t clients) noexcept {
  const std::uint32_t guaranteed = kMaxHandedCalls / 2 / larger_of(clients, 1u);
  return {.elements = kMaxHandedCalls,
          .accounts = clients,
          .guaranteed = guaranteed,
          .most = larger_of(guaranteed, kMaxHandedCalls / 4)};
}

}  // namespace

CrossReactorCall::CrossReactorCall(std::vector<KeyPair> keys, std::uint32_t clients)
    : keys_(std::move(keys)),
      to_owner_(make_owned<CallRing>()),
      to_borrower_(make_owned<CallRing>()),
      calls_(kMaxHandedCalls),
      tickets_(limits_for(clients)),
      shares_(clients) {
  for (std::uint32_t i = 0; i < clients; ++i) shares_[i].handover = this;
  free_.reserve(kMaxHandedCalls);
  for (std::uint32_t i = kMaxHandedCalls; i-- > 0;) free_.push_back(&calls_[i]);
}

void CrossReactorCall::release(HandedCall& handed) noexcept {
  free_.push_back(&handed);
  tickets_.give_back(handed.account());
}

rdma::Lkey CrossReactorCall::borrowers_key(rdma::Lkey owners) const noexcept {
  if (keys_.empty()) return owners;
  for (const KeyPair& pair : keys_)
    if (pair.owner == owners) return pair.borrower;
  return {};  // the device rejects a zero key
}

bool CrossReactorCall::serve() noexcept {
  HandedCall* handed = nullptr;
  std::uint32_t count = 0;
  for (; count < kHandoversPerTurn && to_owner_->pop(handed); ++count) handed->serve();
  return count > 0;
}

bool CrossReactorCall::collect() noexcept {
  HandedCall* handed = nullptr;
  std::uint32_t count = 0;
  for (; count < kHandoversPerTurn && to_borrower_->pop(handed); ++count) resume(*handed);
  if (tickets_.waiters() > 0) tickets_.resume(kHandoversPerTurn);
  return count > 0;
}

void CrossReactorCall::resume(HandedCall& handed) noexcept {
  if (!SLUICE_INVARIANT(handed.answer() != HandedCall::Answer::None, handover_ticket)) return;
  if (handed.answer() == HandedCall::Answer::Released) return release(handed);
  handed.give_back([this](rdma::Lkey key) { return borrowers_key(key); });
}

// --- Shares of the borrower's clients

void CrossReactorCall::hand_over(Call& call, Service& service, HandedCall::Step step) noexcept {
  auto& ticket = call.state<HandoverTicket>();
  ticket.call = &call;
  ticket.service = &service;
  ticket.step = step;
  ClientShare& share = share_of(call);
  const bool in_turn = ticket.handed != nullptr || share.first == nullptr;
  if (in_turn && (ticket.handed != nullptr || tickets_.take(share.account))) return send(ticket, share);
  ++waits_;
  push_waiting(share, ticket);
  tickets_.await(share.account, share);
}

/// Sends the call to the owner. A ticket of the account must have been taken unless the call already has one.
void CrossReactorCall::send(HandoverTicket& ticket, ClientShare& share) noexcept {
  if (ticket.handed == nullptr) {
    ticket.handed = free_.back();
    free_.pop_back();
    ticket.handed->reset(*this, share.account);
  }
  ticket.handed->ask(*ticket.call, *ticket.service, ticket.step);
  to_owner(*ticket.handed);
}

void CrossReactorCall::serve_waiting(ClientShare& share) noexcept {
  if (!SLUICE_INVARIANT(share.first != nullptr, handover_ticket) || !tickets_.take(share.account)) return;
  HandoverTicket& ticket = *share.first;
  remove_waiting(share, ticket);
  if (share.first != nullptr) tickets_.await(share.account, share);
  send(ticket, share);
}

void CrossReactorCall::push_waiting(ClientShare& share, HandoverTicket& ticket) noexcept {
  ticket.waiting = true;
  ticket.next = nullptr;
  ticket.previous = share.last;
  (share.last != nullptr ? share.last->next : share.first) = &ticket;
  share.last = &ticket;
  ++waiting_;
}

void CrossReactorCall::remove_waiting(ClientShare& share, HandoverTicket& ticket) noexcept {
  ticket.waiting = false;
  (ticket.previous != nullptr ? ticket.previous->next : share.first) = ticket.next;
  (ticket.next != nullptr ? ticket.next->previous : share.last) = ticket.previous;
  --waiting_;
}

/// Releases the ticket of a call that has ended.
void CrossReactorCall::let_go(Call& call) noexcept {
  auto& ticket = call.state<HandoverTicket>();
  if (ticket.waiting) {
    ClientShare& share = share_of(call);
    remove_waiting(share, ticket);
    if (share.first == nullptr) tickets_.forget(share.account, share);
  } else if (ticket.handed != nullptr) {
    ticket.handed->ask_release();
    to_owner(*ticket.handed);
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
}

Placement RemoteService::place(Call& call) noexcept {
  handover_.hand_over(call, real_, HandedCall::Step::Place);
  return Placement::Later;
}

Execution RemoteService::execute(Call& call) noexcept {
  handover_.hand_over(call, real_, HandedCall::Step::Execute);
  return Execution::Started;
}

void RemoteService::release(Call& call) noexcept {
  handover_.let_go(call);
}

void RemoteService::client_gone(Client& client) noexcept {
  handover_.client_gone(client);
}

}  // namespace sluice::service
