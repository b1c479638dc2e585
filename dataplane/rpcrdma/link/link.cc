// SPDX-License-Identifier: Apache-2.0
#include "dataplane/rpcrdma/link/link.h"

#include "dataplane/base/invariant.h"
#include "dataplane/base/probes.h"
#include "dataplane/base/small_algorithms.h"
#include "dataplane/rpcrdma/link/config.h"
#include "dataplane/rpcrdma/link/shared_memory.h"
#include "dataplane/rpcrdma/link/version_rules.h"
#include "pmd/device.h"

namespace sluice::rpcrdma {
Link::Link(LinkContext& context, LinkOwner& owner, std::uint16_t number, const ConnectionCapacity& capacity,
           rdma::MemoryRegion receives)
    : FlushEntry(number),
      context_(context),
      counters_(&context.counters.of(0)),
      receives_(receives, capacity.receives(), capacity.receive_bytes),
      rules_(&kVersion1Rules),
      capacity_(capacity),
      owner_(owner) {}

// --- Setup and teardown

/// An illegal transition is still made because the code that follows relies on the new state.
void Link::transition(State to) noexcept {
  static_cast<void>(SLUICE_INVARIANT(may_follow(state_, to), connection_state));
  state_ = to;
}

void Link::transition(VersionState to) noexcept {
  const bool legal = SLUICE_INVARIANT(may_follow(version_, to), connection_state);
  begin(to);
  if (!legal) close(CloseReason::InternalError);
}

void Link::open(Owned<rdma::QueuePair> qp, const ConnectionConfig& config, const PeerAddress& peer) noexcept {
  static_cast<void>(SLUICE_INVARIANT(qp_ == nullptr && qp != nullptr, connection_state));
  static_cast<void>(SLUICE_INVARIANT(drained(), pool_balance));
  ++generation_;
  wr_id_base_ = WrId{.generation = generation_, .connection = connection}.encode();
  qp_ = std::move(qp);
  config_ = config;
  config_.receive_inline_bytes = smaller_of(config.receive_inline_bytes, capacity_.receive_bytes);
  config_.credit_grant = smaller_of(config.credit_grant, capacity_.call_slots);
  config_.credits_requested = smaller_of(config.credits_requested, capacity_.requests);
  if (config_.receive_inline_bytes < v2::kDefaultReceiveBytes) config_.max_version = kVersion1;  // V2-011
  set_client_class(config.client_class);
  peer_ = peer;
  peer_host_ = {};
  close_reason_ = CloseReason::None;
  failure_ = {};
  transition(State::Open);
  retry_ = Retry::None;
  send_room_ = 0;
  traffic_ = {};
  last_post_ns_ = alive_ns_ = context_.now_ns();
  probing_ = flush_again_ = false;
  receives_.open(config_.receive_inline_bytes,
                 config_.credit_grant + config_.credits_requested + kSpareReceives);
  ++counters().connections_opened;
}

/// Sets the version, its rules, and what follows from version 1: the largest Send, and the shortcut, by which
/// plain calls of both directions bypass the general path (V1-157).
void Link::begin(VersionState version) noexcept {
  version_ = version;
  const bool version_2 = is_version_2(version);
  rules_ = version_2 ? &kVersion2Rules : &kVersion1Rules;
  if (!version_2) send_bytes_ = config_.send_inline_bytes;
  const Shortcut of_version_1 = config_.credit_grant > 0 ? Shortcut::CallsAndReplies : Shortcut::Replies;
  shortcut_ = version == VersionState::Version1 && config_.shortcuts ? of_version_1 : Shortcut::None;
}

void Link::post_first_receives() noexcept {
  const std::uint32_t receives = config_.credit_grant + config_.credits_requested + kSpareReceives;
  static_cast<void>(SLUICE_INVARIANT(receives <= capacity_.receives(), pool_balance));
  for (std::uint32_t i = 0; i < receives; ++i) repost(static_cast<std::uint16_t>(i));
  flush_receives();
}

/// Sends an RDMA Write of zero bytes. Every responder acknowledges it and checks neither key nor address
/// (InfiniBand Architecture Specification 1.4, volume 1, section 9.7.4.1.6). It needs no credit. If the peer
/// does not acknowledge it, the driver exhausts its retries and the connection is closed.
void Link::probe_if_silent() noexcept {
  static_cast<void>(SLUICE_INVARIANT(is_open() && qp_ != nullptr, connection_state));
  const std::uint64_t now_ns = context_.now_ns();
  if (config_.probe_after_ns == 0 || probing_ || now_ns <= alive_ns_ ||
      now_ns - alive_ns_ < config_.probe_after_ns || qp_->state() != rdma::QueuePair::State::ReadyToSend)
    return;
  SendStage& staged = stage();
  if (!stage_fits(1) || !staged.begin(rdma::SendOpcode::RdmaWrite, wr_id(WrKind::Probe, 0), rdma::kSignaled))
    return;  // a full send queue has Sends outstanding, which detect a dead peer as well
  probing_ = true;
  ++counters().probes_sent;
}

void Link::close(CloseReason reason) noexcept {
  if (state_ != State::Open) return;
  transition(State::Draining);
  close_reason_ = reason;
  probe::connection_closed(number(), static_cast<std::uint8_t>(reason));
  ++counters().connections_closed;
  if (is_failure(reason)) ++counters().connection_errors;
  // Slots and requests count the staged requests as posted and expect their flushed completions.
  give_up_stage();
  flush_receives();
  static_cast<void>(SLUICE_INVARIANT(
      context_.transmit.staged_for != this && context_.transmit.receives_for != this, connection_state));
  qp_->to_error();
  touch();  // the engine checks whether the link can be reaped
  owner_.on_link_closed();
}

void Link::release_queue_pair() noexcept {
  static_cast<void>(SLUICE_INVARIANT(drained(), pool_balance));
  qp_.reset();
  transition(State::Closed);
}

void Link::set_client_class(std::uint32_t client_class) noexcept {
  config_.client_class = smaller_of(client_class, segment::kMaxClasses - 1);
  counters_ = &context_.counters.of(config_.client_class);
  context_.counters.see(config_.client_class);
}

// --- Receives

void Link::repost(std::uint16_t buffer) noexcept {
  repost_now(buffer);
}

void Link::discard(const ReceivedMessage& message) noexcept {
  context_.assembly.release(message.assembly);
  repost(message.buffer);
}

/// Acquires the Receive stage for this link, or makes room in it.
[[gnu::noinline]] void Link::take_receives() noexcept {
  Transmit& transmit = context_.transmit;
  if (transmit.receives_for != nullptr) transmit.receives_for->flush_receives();
  transmit.receives_for = this;
  touch();
}

void Link::post_receives() noexcept {
  Transmit& transmit = context_.transmit;
  receives_.flush(*qp_, transmit.receives);
  transmit.receives_for = nullptr;
}

void Link::repost_spares() noexcept {
  while (receives_.may_use_spare()) repost(receives_.use_spare());
}

// --- Sending

void Link::take_stage() noexcept {
  Transmit& transmit = context_.transmit;
  if (transmit.staged_for != nullptr) transmit.staged_for->flush_stage();
  transmit.staged_for = this;
  touch();
}

bool Link::make_room_for_one() noexcept {
  if (stage_fits(1) && context_.transmit.stage.mark().sges() < SendStage::kMaxSges) return true;
  flush_stage();
  return stage_fits(1);
}

/// No completion would trigger the retry if no work request is outstanding.
void Link::wait_for_send_room() noexcept {
  ++counters().waits_send_queue;
  if (qp_->send_room() < capacity_.send_depth)
    wait_for_notice();
  else
    retry_at_turn_end();
}

bool Link::append_payload(std::span<const rdma::Sge> payload, std::uint64_t from,
                          std::uint64_t bytes) noexcept {
  for (rdma::Sge piece : payload) {
    if (bytes == 0) break;
    if (from >= piece.length) {
      from -= piece.length;
      continue;
    }
    piece.address += from;
    piece.length = static_cast<std::uint32_t>(smaller_of<std::uint64_t>(piece.length - from, bytes));
    from = 0;
    bytes -= piece.length;
    if (!context_.transmit.stage.append(piece)) return false;
  }
  return true;
}

void Link::flush_stage() noexcept {
  flush_receives();
  SendStage& stage = context_.transmit.stage;
  if (stage.empty()) return;
  SLUICE_INVARIANT_DEBUG(context_.transmit.staged_for == this, connection_state);
  SLUICE_INVARIANT_DEBUG(stage.size() <= SendStage::kMaxWrs, ring_index);
  // The queue pair accepts all of them: room was checked, and a queue pair in Error accepts work requests to
  // flush them.
  // send_room_ may be smaller than what was posted because forget_send_room() may have cleared it.
  send_room_ -= smaller_of(send_room_, static_cast<std::uint32_t>(qp_->post_send(stage.wrs())));
  stage.clear();
  last_post_ns_ = context_.now_ns();
}

void Link::flush() noexcept {
  if (state_ != State::Closed) {
    give_up_stage();
    flush_receives();
  }
  FlushEntry& entry = *this;
  FlushQueue::unlink(entry);
  if (retry_ == Retry::AtTurnEnd || flush_again_) touch();
  flush_again_ = false;
}

// --- Close reasons

const char* to_string(CloseReason reason) noexcept {
  switch (reason) {
    case CloseReason::None:
      return "it has not been closed";
    case CloseReason::PeerClosed:
      return "the peer closed it";
    case CloseReason::LocalClose:
      return "this side closed it";
    case CloseReason::TransportError:
      return "the transport reported an error";
    case CloseReason::RemoteAccess:
      return "the peer's memory refused an access";
    case CloseReason::InvalidationError:
      return "memory could not be invalidated";
    case CloseReason::CreditOverrun:
      return "the peer exceeded its credits";
    case CloseReason::NoAnswer:
      return "the first message was not answered";
    case CloseReason::SequenceTimeout:
      return "the peer did not complete a continued message";
    case CloseReason::NotAuthenticated:
      return "the peer did not authenticate itself";
    case CloseReason::NoCommonVersion:
      return "there is no common version of RPC-over-RDMA";
    case CloseReason::InternalError:
      return "an internal error occurred";
    case CloseReason::NoProgress:
      return "the peer made no progress with a call";
    case CloseReason::Unanswerable:
      return "a call could not be answered, and the client has to retransmit it";
    case CloseReason::Silent:
      return "the server answered no calls";
  }
  return "?";
}

// --- Shared memory

void SharedMemory::provide(rdma::Device& device, const SharedMemoryConfig& config) {
  const std::uint32_t small = config.small_buffers();
  const std::size_t all_small = std::size_t{small} * config.small_bytes;
  const rdma::MemoryRegion region =
      device.allocate_memory(all_small + std::size_t{config.large} * config.large_bytes);
  lkey_ = region.lkey;
  large_begin_ = region.bytes.data() + all_small;
  static_cast<void>(SLUICE_INVARIANT(all_small <= region.bytes.size(), buffer_bounds));
  if (small > 0)
    small_.provide({{region.bytes.first(all_small), lkey_}, config.small_bytes},
                   {.elements = small,
                    .accounts = config.accounts,
                    .guaranteed = config.guaranteed_small,
                    .most = config.guaranteed_small + config.lent_small / 2});
  large_.provide({{region.bytes.subspan(all_small), lkey_}, config.large_bytes},
                 {.elements = config.large,
                  .accounts = config.accounts,
                  .guaranteed = config.large >= config.accounts ? 1u : 0u,
                  .most = larger_of((config.large + 1) / 2, smaller_of(config.large, 2u))});
}

void SharedMemory::await(Account& account, std::size_t bytes, ShareWaiter& waiter) noexcept {
  SLUICE_INVARIANT_DEBUG(bytes <= most_bytes(), buffer_bounds);
  if (fits_small(bytes))
    small_.ledger().await(account.small, waiter);
  else
    large_.ledger().await(account.large, waiter);
}

void SharedMemory::forget(Account& account, ShareWaiter& waiter) noexcept {
  small_.ledger().forget(account.small, waiter);
  large_.ledger().forget(account.large, waiter);
}

void SharedMemory::forget_all(Account& account) noexcept {
  small_.ledger().forget_all(account.small);
  large_.ledger().forget_all(account.large);
}

}  // namespace sluice::rpcrdma
