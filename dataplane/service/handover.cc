// SPDX-License-Identifier: Apache-2.0
#include "dataplane/service/handover.h"

#include <algorithm>

namespace sluice::service {

HandedCall::HandedCall() noexcept {
  complete_ = &on_complete;
  grow_ = &on_grow;
}

void HandedCall::take_over(Call& call, Service& service, Step step) noexcept {
  call_ = &call;
  service_ = &service;
  step_ = step;
  completed_ = needs_memory_ = false;
  auth_error_ = rpc::AuthStat::Ok;
  header_ = call.header_;
  peer_ = call.peer_;
  offered_results_ = call.offered_results_;
  arguments_ = call.arguments_;
  placed_bytes_ = call.placed_bytes_;
  results_ = call.results_;
}

void HandedCall::on_complete(Call& call, rpc::AcceptStat stat) noexcept {
  auto& handed = static_cast<HandedCall&>(call);
  if (handed.completed_) return;
  handed.completed_ = true;
  handed.stat_ = stat;
  if (!handed.serving_) handed.handover_->to_borrower(handed);
}

/// The room is the borrower's to give: it is asked for, and the call comes again.
bool HandedCall::on_grow(Call& call, std::size_t bytes) noexcept {
  static_cast<HandedCall&>(call).wanted_ = bytes;
  return false;
}

void HandedCall::serve() noexcept {
  serving_ = true;
  switch (step_) {
    case Step::Place:
      placement_ = service_->place(*this);
      break;
    case Step::Execute:
      needs_memory_ = service_->execute(*this) == Execution::NeedsMemory;
      break;
    case Step::Release:
      service_->release(*this);
      break;
  }
  serving_ = false;
}

template <typename Translate>
void HandedCall::give_back(const Translate& lkey_of) noexcept {
  Call& call = *call_;
  for (std::uint16_t i = 0; i < piece_count_; ++i) {
    call.pieces_[i] = pieces_[i];
    call.pieces_[i].lkey = lkey_of(pieces_[i].lkey);
  }
  call.piece_count_ = piece_count_;
  std::copy_n(items_.begin(), item_count_, call.items_.begin());
  call.item_count_ = item_count_;
  if (completed_) call.results_ = results_;
}

Handover::Handover(std::vector<KeyPair> keys)
    : keys_(std::move(keys)),
      to_owner_(std::make_unique<CallRing>()),
      to_borrower_(std::make_unique<CallRing>()),
      calls_(std::make_unique<HandedCall[]>(kMaxHandedCalls)) {
  free_.reserve(kMaxHandedCalls);
  for (std::uint32_t i = kMaxHandedCalls; i-- > 0;) {
    calls_[i].handover_ = this;
    free_.push_back(&calls_[i]);
  }
}

HandedCall* Handover::acquire() noexcept {
  if (free_.empty()) return nullptr;
  HandedCall* handed = free_.back();
  free_.pop_back();
  handed->state_bytes_.fill(std::byte{0});
  handed->piece_count_ = handed->item_count_ = 0;
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
  for (; count < kHandoversPerTurn && to_owner_->pop(handed); ++count) {
    handed->serve();
    const bool answered =
        handed->step_ != HandedCall::Step::Execute || handed->completed_ || handed->needs_memory_;
    if (answered) to_borrower(*handed);
  }
  return count > 0;
}

bool Handover::collect() noexcept {
  HandedCall* handed = nullptr;
  std::uint32_t count = 0;
  for (; count < kHandoversPerTurn && to_borrower_->pop(handed); ++count) go_on(*handed);
  return count > 0;
}

void Handover::go_on(HandedCall& handed) noexcept {
  if (handed.step_ == HandedCall::Step::Release) return release(handed);
  Call& call = *handed.call_;
  handed.give_back([this](rdma::Lkey key) { return borrowers_key(key); });
  if (handed.completed_) {
    if (handed.auth_error_ != rpc::AuthStat::Ok)
      call.deny(handed.auth_error_);
    else
      call.complete(handed.stat_);
  } else if (handed.step_ == HandedCall::Step::Place) {
    call.placed(handed.placement_);
  } else if (call.require_results(handed.wanted_)) {
    handed.needs_memory_ = false;
    handed.renew_results();
    to_owner(handed);
  } else {
    call.await_memory();
  }
}

bool BorrowedService::hand_over(Call& call, HandedCall::Step step) noexcept {
  auto& ticket = call.state<Ticket>();
  if (ticket.handed == nullptr) ticket.handed = handover_.acquire();
  if (ticket.handed == nullptr) {
    ++handover_.refused_;
    call.complete(rpc::AcceptStat::SystemErr);
    return false;
  }
  ticket.handed->take_over(call, real_, step);
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
  HandedCall& handed = *ticket.handed;
  handed.call_ = nullptr;
  handed.step_ = HandedCall::Step::Release;
  handover_.to_owner(handed);
}

}  // namespace sluice::service
