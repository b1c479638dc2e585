// SPDX-License-Identifier: Apache-2.0
#include "pmd/verbs/queue_pair.h"

#include "pmd/verbs/device.h"

namespace sluice::rdma::verbs {

VerbsQueuePair::VerbsQueuePair(VerbsDevice& device, std::uint16_t slot, std::uint16_t generation,
                               Hardware& hardware)
    : device_(device),
      shares_receives_(device.shared_receives() != nullptr),
      hardware_(hardware),
      qp_(hardware.qp),
      extended_(hardware.extended),
      number_(static_cast<QueuePairNumber>(hardware.qp->qp_num)),
      slot_(slot),
      generation_(generation),
      max_inline_(hardware.max_inline),
      sends_(hardware.limits.send_depth),
      receives_(hardware.limits.recv_depth) {
  device_.add_depth(std::size_t{sends_.depth()} + receives_.depth());
}

VerbsQueuePair::~VerbsQueuePair() {
  stop_posting();
  device_.release(*this, holds_device());
  device_.forget_completions_of(number_);
  device_.remove_depth(std::size_t{sends_.depth()} + receives_.depth());
}

void VerbsQueuePair::stop_posting() noexcept {
  state_ = State::Error;
  chain_length_ = 0;
  if (!staged_) return;
  staged_ = false;
  device_.remove_staged(*this);
  if (extended_ != nullptr) ibv_wr_abort(extended_);
}

void VerbsQueuePair::lose() noexcept {
  stop_posting();
  device_.end(*this);
}

bool VerbsQueuePair::connect(const RcAttributes& attributes) noexcept {
  if (state_ != State::Init || connecting_) return false;
  connecting_ = true;
  hardware_.attributes = attributes;
  device_.ask(SetupStep::Connect, slot_);
  return true;
}

void VerbsQueuePair::on_connected(bool done) noexcept {
  if (state_ != State::Init) return;
  if (done)
    state_ = State::ReadyToSend;
  else
    to_error();
}

void VerbsQueuePair::to_error() noexcept {
  if (state_ == State::Error) return;
  ring_doorbell();
  if (state_ == State::Error) return;  // the provider refused
  state_ = State::Error;
  device_.fail(slot_);
}

void VerbsQueuePair::on_failed() noexcept {
  let_go_ = true;
  flush_sends_after_device();
  flush_receives_after_device();
}

/// The device accesses no memory for this queue pair any more.
void VerbsQueuePair::on_destroyed() noexcept {
  state_ = State::Error;
  device_sends_ = sends_.tail();
  device_receives_ = receives_.tail();
  on_failed();
}

}  // namespace sluice::rdma::verbs
