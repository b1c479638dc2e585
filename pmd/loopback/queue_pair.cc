// SPDX-License-Identifier: Apache-2.0
#include "pmd/loopback/queue_pair.h"

#include <bit>
#include <cstring>

#include "dataplane/base/invariant.h"
#include "dataplane/base/small_algorithms.h"
#include "pmd/loopback/device.h"

namespace sluice::rdma::loopback {
LoopbackQueuePair::LoopbackQueuePair(LoopbackDevice& device, QueuePairNumber number,
                                     const QueuePairLimits& limits)
    : device_(device),
      number_(number),
      send_depth_(limits.send_depth),
      recv_depth_(limits.recv_depth),
      max_sge_(limits.max_send_sge),
      rnr_retry_(limits.rnr_retry),
      send_mask_(std::bit_ceil(limits.send_depth) - 1),
      recv_mask_(std::bit_ceil(limits.recv_depth) - 1),
      windows_(*this, device.window_owners()),
      send_queue_(std::size_t{send_mask_} + 1),
      send_sges_((std::size_t{send_mask_} + 1) * limits.max_send_sge),
      recv_queue_(std::size_t{recv_mask_} + 1) {}

LoopbackQueuePair::~LoopbackQueuePair() {
  to_error();
  if (!windows_.none()) windows_.unbind_all(own());
  static_cast<void>(SLUICE_INVARIANT(state_ == State::Error && windows_.none(), queue_pair_state));
  device_.cm().release_link(*this);
  device_.remove(*this);
}

void LoopbackQueuePair::attach(Link& link, std::uint32_t side) noexcept {
  static_cast<void>(SLUICE_INVARIANT(link_ == nullptr && side < 2, queue_pair_state));
  link_ = &link;
  side_ = side;
  own().rnr_retry.store(rnr_retry_, std::memory_order_relaxed);
  own().arena.store(device_.number(), std::memory_order_relaxed);
  if (state_ == State::Init) state_ = State::ReadyToSend;
}

// --- TX

std::size_t LoopbackQueuePair::post_send(std::span<const SendWr> wrs) noexcept {
  if (state_ == State::Init) return 0;
  std::size_t posted = 0;
  while (posted < wrs.size() && tail_ - head_ < send_depth_ && add_entry(wrs[posted])) ++posted;
  if (state_ == State::ReadyToSend) {
    std::uint32_t no_copies = 0;  // RDMA data is moved in poll(), where each queue pair has its budget
    execute_posted(no_copies);
    sending_.publish(own());
  }
  return posted;
}

bool LoopbackQueuePair::add_entry(const SendWr& wr) noexcept {
  SLUICE_INVARIANT_DEBUG(tail_ - head_ < send_depth_, ring_index);
  SendEntry& added = entry(tail_);
  added = {.wr_id = wr.wr_id,
           .remote_address = wr.remote_address,
           .rkey = wr.rkey,
           .delay_polls = device_.config().delay_invalidation_polls,
           .sge_count = static_cast<std::uint16_t>(smaller_of<std::size_t>(wr.sges.size(), max_sge_)),
           .opcode = wr.opcode,
           .flags = wr.flags};
  if (wr.sges.size() > max_sge_) added.status = WcStatus::LocalLengthError;
  if (wr.opcode == SendOpcode::SendWithImmediate || wr.opcode == SendOpcode::RdmaWriteWithImmediate)
    added.status = WcStatus::LocalLengthError;  // DeviceLimits::immediate_data is false
  const std::span<Sge> sges = sges_of(tail_);
  for (std::size_t i = 0; i < added.sge_count; ++i) {
    sges[i] = wr.sges[i];
    added.bytes += sges[i].length;
    if (!device_.local_access(sges[i])) added.status = WcStatus::LocalProtectionError;
  }
  ++tail_;
  return true;
}

/// Starts work requests in order, as far as the wire and the copy budget allow.
void LoopbackQueuePair::execute_posted(std::uint32_t& copy_budget) noexcept {
  SLUICE_INVARIANT_DEBUG(execute_ - head_ <= tail_ - head_ && tail_ - head_ <= send_depth_, ring_index);
  while (execute_ != tail_ && execute(execute_, copy_budget)) ++execute_;
}

bool LoopbackQueuePair::execute(std::uint32_t index, std::uint32_t& copy_budget) noexcept {
  SendEntry& work = entry(index);
  if (work.status != WcStatus::Success)
    return false;  // failed when posted; complete_sends() completes it in order
  switch (work.opcode) {
    case SendOpcode::Send:
    case SendOpcode::SendWithInvalidate:
      return put_on_wire(index);
    case SendOpcode::RdmaWrite:
    case SendOpcode::RdmaRead:
      return copy_remote(index, copy_budget);
    case SendOpcode::LocalInvalidate:
      return invalidate_local(work);
    case SendOpcode::SendWithImmediate:
    case SendOpcode::RdmaWriteWithImmediate:
      break;  // refused when posted
  }
  return false;
}

bool LoopbackQueuePair::put_on_wire(std::uint32_t index) noexcept {
  SendEntry& work = entry(index);
  SLUICE_INVARIANT_DEBUG(work.stage == Stage::Posted, queue_pair_state);
  if (work.bytes > kMaxSendBytes) {
    work.status = WcStatus::LocalLengthError;
    return false;
  }
  const std::uint32_t kind =
      work.opcode == SendOpcode::SendWithInvalidate ? kKindSendWithInvalidate : kKindSend;
  std::byte* at = sending_.add(own(), peer(), kind, work.bytes, work.rkey);
  if (at == nullptr) return false;
  for (const Sge& piece : sges_of(index)) {
    std::memcpy(at, piece.address, piece.length);
    at += piece.length;
  }
  work.end_position = sending_.position();
  work.stage = Stage::OnWire;
  ++on_wire_;
  ++device_.stats().sends;
  return true;
}

/// Copies one slice of an RDMA Read or Write. The hazard word (seq_cst, as is the key) makes invalidation
/// safe: either this side sees the steering tag cleared, or the owner sees the hazard and delays the
/// completion of its invalidation.
bool LoopbackQueuePair::copy_remote(std::uint32_t index, std::uint32_t& copy_budget) noexcept {
  SendEntry& work = entry(index);
  SLUICE_INVARIANT_DEBUG(work.stage == Stage::Posted && work.copied <= work.bytes, buffer_bounds);
  const bool reading = work.opcode == SendOpcode::RdmaRead;
  if (work.bytes == 0) return transferred(work);  // neither key nor address counts (9.7.4.1.6)
  if (copy_budget == 0) return false;

  const WindowEntry& window = peer().windows[window_number(work.rkey)];
  const auto key = static_cast<std::uint32_t>(work.rkey);
  own().hazard.store(key, std::memory_order_seq_cst);
  std::byte* remote = nullptr;
  if (key != 0 && window.key.load(std::memory_order_seq_cst) == key)
    remote = remote_memory(device_.fabric(), peer(), window, work.remote_address, work.bytes,
                           reading ? kRemoteRead : kRemoteWrite);
  if (remote != nullptr) {
    const std::uint32_t most = smaller_of(copy_budget, work.bytes - work.copied);
    const std::uint32_t bytes = copy_slice(sges_of(index), remote, work.copied, most, reading);
    work.copied += bytes;
    copy_budget -= bytes;
  }
  SLUICE_INVARIANT_DEBUG(work.copied <= work.bytes, buffer_bounds);
  // Pairs with invalidate_local() and flush(): the slice has been copied.
  own().hazard.store(0, std::memory_order_release);

  if (remote == nullptr) {
    ++device_.stats().access_errors;
    work.status = WcStatus::RemoteAccessError;
    return false;
  }
  return work.copied == work.bytes && transferred(work);
}

bool LoopbackQueuePair::transferred(SendEntry& work) noexcept {
  work.stage = Stage::Done;
  Statistics& stats = device_.stats();
  const bool reading = work.opcode == SendOpcode::RdmaRead;
  ++(reading ? stats.reads : stats.writes);
  (reading ? stats.read_bytes : stats.write_bytes) += work.bytes;
  return true;
}

std::optional<Rkey> LoopbackQueuePair::bind_window(MemoryWindow window, std::span<std::byte> bytes, Lkey lkey,
                                                   AccessFlags access) noexcept {
  if (state_ != State::ReadyToSend || !windows_.is_free(window.number) ||
      !device_.local_access({bytes.data(), static_cast<std::uint32_t>(bytes.size()), lkey}))
    return std::nullopt;
  const auto offset = device_.arena_offset(bytes);
  if (!offset) return std::nullopt;
  const Rkey rkey = device_.next_rkey(window.number);
  windows_.bind(own(), window.number, rkey, bytes, *offset, access);
  ++device_.stats().binds;
  return rkey;
}

bool LoopbackQueuePair::invalidate_local(SendEntry& work) noexcept {
  const std::uint32_t number = window_number(work.rkey);
  WindowEntry& tag = own().windows[number];
  const auto key = static_cast<std::uint32_t>(work.rkey);
  const bool bound =
      windows_.has(number) && key != 0 && (work.copied > 0 || tag.key.load(std::memory_order_relaxed) == key);
  if (!bound || device_.config().refuse_invalidation) {
    work.status = WcStatus::BindError;
    return false;
  }
  work.copied = 1;  // marks the tag as cleared (next line); later polls only wait for the peer
  tag.key.store(0, std::memory_order_seq_cst);
  if (peer().hazard.load(std::memory_order_seq_cst) == key) return false;
  if (work.delay_polls > 0) return --work.delay_polls, false;
  windows_.unbind(number);
  ++device_.stats().invalidations;
  work.stage = Stage::Done;
  return true;
}

void LoopbackQueuePair::complete_entry(SendEntry& done, WcStatus status, CompletionSink& sink) noexcept {
  SLUICE_INVARIANT_DEBUG(head_ != tail_, ring_index);
  ++head_;
  if (status == WcStatus::Success && (done.flags & kSignaled) == 0) return;
  WorkCompletion& wc = sink.add();
  wc.wr_id = done.wr_id;
  wc.qp = number_;
  wc.status = status;
  wc.byte_len = done.bytes;
  wc.opcode = completion_opcode(done.opcode);
}

void LoopbackQueuePair::complete_sends(CompletionSink& sink) noexcept {
  if (head_ == tail_) return;
  SLUICE_INVARIANT_DEBUG(tail_ - head_ <= send_depth_ && on_wire_ <= tail_ - head_, ring_index);
  auto fault = WcStatus::Success;
  if (on_wire_ > 0) {
    // The peer stores `consumed` before `fault`, so load them in reverse order. Pairs with refuse().
    fault = static_cast<WcStatus>(peer().fault.load(std::memory_order_acquire));
    const std::uint64_t before = sending_.acknowledged();
    if (!sending_.read_acknowledged(peer())) return corrupt();
    if (waits_for_peer_ && sending_.acknowledged() == before && fault == WcStatus::Success) return;
  }
  waits_for_peer_ = false;
  while (head_ != tail_ && !sink.full()) {
    SendEntry& work = entry(head_);
    if (work.stage == Stage::Done) {
      complete_entry(work, WcStatus::Success, sink);
    } else if (work.stage == Stage::OnWire && sending_.acknowledged() >= work.end_position) {
      SLUICE_INVARIANT_DEBUG(on_wire_ > 0, ring_index);
      --on_wire_;
      complete_entry(work, WcStatus::Success, sink);
    } else if (work.stage == Stage::OnWire && fault != WcStatus::Success) {
      complete_entry(work, fault <= WcStatus::RnrRetryExceeded ? fault : WcStatus::RemoteOperationError,
                     sink);
      return to_error();
    } else if (work.stage == Stage::Posted && work.status != WcStatus::Success) {
      complete_entry(work, work.status, sink);
      return to_error();
    } else {
      waits_for_peer_ = work.stage == Stage::OnWire;
      return;
    }
  }
}

// --- RX

std::size_t LoopbackQueuePair::post_recv(std::span<const RecvWr> wrs) noexcept {
  std::size_t posted = 0;
  while (posted < wrs.size() && recv_tail_ - recv_head_ < recv_depth_)
    recv_queue_[recv_tail_++ & recv_mask_] = wrs[posted++];
  SLUICE_INVARIANT_DEBUG(recv_tail_ - recv_head_ <= recv_depth_, ring_index);
  return posted;
}

void LoopbackQueuePair::receive(CompletionSink& sink) noexcept {
  using Found = WireReceiver::Found;
  const std::uint64_t before = receiving_.position();
  for (std::uint32_t taken = 0; taken < kReceivesPerPoll && !sink.full() && state_ == State::ReadyToSend;
       ++taken) {
    WireRecord record;
    const Found found = receiving_.find(peer(), record);
    if (found == Found::Corrupt) return corrupt();
    if (found == Found::Nothing) break;
    if (recv_head_ == recv_tail_) {
      not_ready();
      break;
    }
    if (!receive_record(record, sink)) break;
    receiving_.take(record);
  }
  if (receiving_.position() != before && state_ == State::ReadyToSend) receiving_.acknowledge(own());
}

bool LoopbackQueuePair::receive_record(const WireRecord& record, CompletionSink& sink) noexcept {
  SLUICE_INVARIANT_DEBUG(recv_head_ != recv_tail_, ring_index);
  const RecvWr& wr = recv_queue_[recv_head_ & recv_mask_];
  WorkCompletion& wc = sink.add();
  wc.wr_id = wr.wr_id;
  wc.qp = number_;
  wc.opcode = WcOpcode::Receive;
  wc.byte_len = record.length;
  ++recv_head_;
  rnr_polls_ = rnr_rounds_ = 0;
  if (record.length > wr.sge.length) {
    wc.status = WcStatus::LocalLengthError;
    return refuse(WcStatus::RemoteInvalidRequest), false;
  }
  if (!device_.local_access({wr.sge.address, record.length, wr.sge.lkey})) {
    wc.status = WcStatus::LocalProtectionError;
    return refuse(WcStatus::RemoteOperationError), false;
  }
  SLUICE_INVARIANT_DEBUG(record.length <= wr.sge.length, buffer_bounds);
  std::memcpy(wr.sge.address, record.data, record.length);
  ++device_.stats().receives;
  if (record.kind != kKindSendWithInvalidate) return true;

  const std::uint32_t number = window_number(record.rkey);
  WindowEntry& tag = own().windows[number];
  if (!windows_.has(number) ||
      tag.key.load(std::memory_order_relaxed) != static_cast<std::uint32_t>(record.rkey)) {
    wc.status = WcStatus::LocalProtectionError;
    return refuse(WcStatus::RemoteAccessError), false;
  }
  // The peer starts its work requests in order: its Reads and Writes with this tag have completed.
  tag.key.store(0, std::memory_order_relaxed);
  windows_.unbind(number);
  wc.rkey = record.rkey;
  wc.remote_invalidate = true;
  return true;
}

/// Handles receiver-not-ready: the message stays on the wire, and this side counts the sender's retries.
void LoopbackQueuePair::not_ready() noexcept {
  if (++rnr_polls_ < device_.config().polls_per_rnr_round) return;
  rnr_polls_ = 0;
  ++device_.stats().rnr_rounds;
  const std::uint32_t limit = peer().rnr_retry.load(std::memory_order_relaxed);
  if (limit >= 7 || rnr_rounds_++ < limit) return;
  refuse(WcStatus::RnrRetryExceeded);
}

/// Reports to the sender why the Send at our position fails, and moves to Error.
void LoopbackQueuePair::refuse(WcStatus senders_status) noexcept {
  receiving_.acknowledge(own());  // the records before the refused one
  // Pairs with complete_sends(): `consumed` is the position of the refused Send.
  own().fault.store(static_cast<std::uint32_t>(senders_status), std::memory_order_release);
  to_error();
}

void LoopbackQueuePair::corrupt() noexcept {
  ++device_.stats().corrupt_records;
  to_error();
}

// --- Both directions

void LoopbackQueuePair::to_error() noexcept {
  if (state_ == State::Error) return;
  state_ = State::Error;
  if (link_ == nullptr) return;
  own().dead.store(1, std::memory_order_release);  // pairs with poll(): all that this side sent
  // Revokes remote access. Windows stay assigned until the queue pair is destroyed.
  windows_.clear_tags(own());
}

void LoopbackQueuePair::flush(CompletionSink& sink) noexcept {
  // No flush may be reported while the peer is copying, because its owner would then reuse the memory.
  if (link_ != nullptr && peer().hazard.load(std::memory_order_seq_cst) != 0) return;
  while (head_ != tail_ && !sink.full()) {
    SendEntry& work = entry(head_);
    if (work.stage == Stage::OnWire) {
      static_cast<void>(SLUICE_INVARIANT(on_wire_ > 0, ring_index));
      --on_wire_;
    }
    ++device_.stats().flushed;
    complete_entry(work, WcStatus::WrFlushError, sink);
  }
  while (recv_head_ != recv_tail_ && !sink.full()) {
    WorkCompletion& wc = sink.add();
    wc.wr_id = recv_queue_[recv_head_++ & recv_mask_].wr_id;
    wc.qp = number_;
    wc.opcode = WcOpcode::Receive;
    wc.status = WcStatus::WrFlushError;
    ++device_.stats().flushed;
  }
}

void LoopbackQueuePair::poll(CompletionSink& sink) noexcept {
  if (state_ == State::ReadyToSend) {
    // Pairs with to_error(): all that the peer sent.
    const bool peer_dead = peer().dead.load(std::memory_order_acquire) != 0;
    std::uint32_t copy_budget = kCopyBytesPerPoll;
    complete_sends(sink);
    const std::uint32_t executed = execute_;
    if (state_ == State::ReadyToSend) execute_posted(copy_budget);
    if (execute_ != executed || copy_budget != kCopyBytesPerPoll) device_.on_moved();
    if (state_ == State::ReadyToSend) {
      sending_.publish(own());
      receive(sink);
    }
    // Everything that the peer sent before it failed has been received by now, unless `sink` became full.
    if (state_ == State::ReadyToSend && peer_dead && !sink.full()) {
      complete_sends(sink);
      if (head_ != tail_ && !sink.full()) complete_entry(entry(head_), WcStatus::RetryExceeded, sink);
      to_error();
    }
  }
  if (state_ == State::Error) flush(sink);
}

}  // namespace sluice::rdma::loopback
