// SPDX-License-Identifier: Apache-2.0
#include "dataplane/service/handover.h"

#include <utility>

#include "dataplane/base/invariant.h"

namespace sluice::service {

// --- Borrower

void HandedCall::reset(Handover& handover) noexcept {
  handover_ = &handover;
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

/// The first answer counts, and may come at any time: within serve(), or later from the service.
void HandedCall::set_answer(Answer answer) noexcept {
  if (answer_ != Answer::None) return;
  answer_ = answer;
  if (!serving_) handover_->to_borrower(*this);
}

void HandedCall::on_complete(Call&, rpc::AcceptStat stat) noexcept {
  if (answer_ == Answer::None) stat_ = stat;
  set_answer(Answer::Completed);
}

/// The room is the borrower's to give: it is asked for, and the call comes again.
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

Handover::Handover(std::vector<KeyPair> keys)
    : keys_(std::move(keys)),
      to_owner_(std::make_unique<CallRing>()),
      to_borrower_(std::make_unique<CallRing>()),
      calls_(std::make_unique<HandedCall[]>(kMaxHandedCalls)) {
  free_.reserve(kMaxHandedCalls);
  for (std::uint32_t i = kMaxHandedCalls; i-- > 0;) free_.push_back(&calls_[i]);
}

HandedCall* Handover::acquire() noexcept {
  if (free_.empty()) return nullptr;
  HandedCall* handed = free_.back();
  free_.pop_back();
  handed->reset(*this);
  return handed;
}

rdma::Lkey Handover::borrowers_key(rdma::Lkey owners) const noexcept {
  if (keys_.empty()) return owners;
  for (const KeyPair& pair : keys_)
    if (pair.owner == owners) return pair.borrower;
  return {};  // the device refuses it
}

bool Handover::serve() noexcept {
  HandedCall* handed = nullptr;
  std::uint32_t count = 0;
  for (; count < kHandoversPerTurn && to_owner_->pop(handed); ++count) handed->serve();
  return count > 0;
}

bool Handover::collect() noexcept {
  HandedCall* handed = nullptr;
  std::uint32_t count = 0;
  for (; count < kHandoversPerTurn && to_borrower_->pop(handed); ++count) resume(*handed);
  return count > 0;
}

void Handover::resume(HandedCall& handed) noexcept {
  if (!SLUICE_INVARIANT(handed.answer() != HandedCall::Answer::None, handover_ticket)) return;
  if (handed.answer() == HandedCall::Answer::Released) return release(handed);
  handed.give_back([this](rdma::Lkey key) { return borrowers_key(key); });
}

bool BorrowedService::hand_over(Call& call, HandedCall::Step step) noexcept {
  auto& ticket = call.state<Ticket>();
  if (ticket.handed == nullptr) ticket.handed = handover_.acquire();
  if (ticket.handed == nullptr) {
    ++handover_.refused_;
    call.complete(rpc::AcceptStat::SystemErr);
    return false;
  }
  ticket.handed->ask(call, real_, step);
  handover_.to_owner(*ticket.handed);
  return true;
}

Placement BorrowedService::place(Call& call) noexcept {
  return hand_over(call, HandedCall::Step::Place) ? Placement::Later : Placement::Reply;
}

Execution BorrowedService::execute(Call& call) noexcept {
  hand_over(call, HandedCall::Step::Execute);
  return Execution::Started;
}

void BorrowedService::release(Call& call) noexcept {
  auto& ticket = call.state<Ticket>();
  if (ticket.handed == nullptr) return;
  ticket.handed->ask_release();
  handover_.to_owner(*ticket.handed);
}

}  // namespace sluice::service
