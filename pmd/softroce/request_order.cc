// SPDX-License-Identifier: Apache-2.0
//
// Order of requests in the responder half of a queue pair, and the packets that arrive out of order
// (early_packets.h). Requests are executed in PSN order (InfiniBand 9.7.4.1). Section 9.7.5.1 specifies
// duplicates and sequence errors.
//
// A packet of the RDMA Write in progress is placed even if an earlier packet is missing, because its PSN
// determines its position. Other packets are copied and executed in order, because they may write to memory
// that an earlier message still has to write. Packets that cannot be kept are dropped. The NAK is repeated
// until the gap is closed, because some peers (Linux's rxe) retransmit only the first packet after a NAK and
// have no timer for the others.
#include <cstring>

#include "dataplane/base/invariant.h"
#include "dataplane/base/small_algorithms.h"
#include "pmd/softroce/device.h"
#include "pmd/softroce/early_packets.h"
#include "pmd/softroce/responder.h"

namespace sluice::rdma::softroce {

bool Responder::on_request(const Packet& packet) noexcept {
  SLUICE_INVARIANT_DEBUG(expected_psn_ <= kPsnMask, psn_window);
  const std::int32_t ahead = psn_distance(expected_psn_, packet.bth.psn);
  if (ahead != 0) {
    ahead < 0 ? on_duplicate(packet) : on_early(packet);
    return true;
  }
  // All packets are executed through one call, which the compiler inlines. Very few packets close a gap.
  const Packet* next = &packet;
  std::uint32_t behind = packet.bth.psn;
  while (next != nullptr) {
    const std::uint32_t psn = expected_psn_;
    if (!execute(*next)) return false;
    if (gap_.state() == RequestGap::State::None) [[likely]]
      return true;
    if (expected_psn_ == psn) break;
    if (next == &packet) behind = expected_psn_;
    next = next_kept();
  }
  if (behind != packet.bth.psn) continue_behind_gap(expected_psn_ != behind);
  return true;
}

/// Schedules a NAK for the gap at expected_psn_ and the repetition of the NAK.
void Responder::schedule_nak() noexcept {
  gap_.schedule_nak(device_.now_ns(), path_.round_trip());
  answer(Answer::Nak);
}

/// Drops the packets after the gap. Either the gap is closed, or the peer has not reacted to any NAK. In the
/// second case only the peer's own timers can continue, or another host has sent those packets.
void Responder::forget_gap() noexcept {
  gap_.forget();
  device_.early_packets().release(early_);
  static_cast<void>(SLUICE_INVARIANT(early_.count == 0, pool_balance));
}

void Responder::on_gap_timer() noexcept {
  using enum RequestGap::State;
  static_cast<void>(
      SLUICE_INVARIANT(gap_.state() == Known || gap_.state() == NakScheduled, connection_state));
  gap_.is_hopeless() ? forget_gap() : schedule_nak();
}

/// Keeps the packet, and schedules a NAK if one is due.
void Responder::on_early(const Packet& packet) noexcept {
  keep(packet);
  const bool scheduled = gap_.state() == RequestGap::State::NakScheduled;
  if (!gap_.on_early(packet.bth.psn, expected_psn_)) return;
  device_.stats().sequence_errors += !scheduled;
  schedule_nak();
}

/// Keeps a packet until it is executed in order, which validates its opcode and its range.
void Responder::keep(const Packet& packet) noexcept {
  SLUICE_INVARIANT_DEBUG(early_.count <= kEarlyPacketsPerQueuePair, pool_balance);
  const auto ahead = static_cast<std::uint32_t>(psn_distance(expected_psn_, packet.bth.psn));
  if (ahead < kMaxKeptPackets && length_fits(packet)) {
    const bool of_write = incoming_ == Incoming::Write && ahead * path_.mtu() < incoming_bytes_;
    const std::uint16_t before = early_.count;
    const bool placed = of_write && kept_.holds(packet.bth.psn);
    if (placed || (of_write ? place_early(packet, ahead) : device_.early_packets().add(early_, packet))) {
      // A packet that arrives again is counted once.
      device_.stats().packets_kept += of_write ? !placed : early_.count - before;
      return;
    }
  }
  ++device_.stats().early_dropped;
}

/// Places packet number `ahead` of the rest of the Write in progress. Returns false if that position needs
/// another packet, or if the memory is no longer accessible.
bool Responder::place_early(const Packet& packet, std::uint32_t ahead) noexcept {
  const std::uint32_t offset = ahead * path_.mtu();
  SLUICE_INVARIANT_DEBUG(incoming_ == Incoming::Write && offset < incoming_bytes_, buffer_bounds);
  const std::uint32_t rest = incoming_bytes_ - offset;
  const std::uint32_t bytes = smaller_of(rest, path_.mtu());
  if (!packet.kind.write || packet.kind.first || packet.kind.has_immediate ||
      packet.payload.size() != bytes || packet.kind.last != (rest <= path_.mtu()))
    return false;
  std::byte* to = device_.memory().remote(write_rkey_, write_address_ + offset, bytes, kRemoteWrite, owner_);
  if (to == nullptr) return false;
  std::memcpy(to, packet.payload.data(), bytes);
  kept_.add(packet.bth.psn);
  return true;
}

/// Counts the packets of the Write in progress that were placed already. Returns false if the next packet is
/// missing.
bool Responder::pass_placed() noexcept {
  const std::uint32_t before = expected_psn_;
  while (incoming_ == Incoming::Write && kept_.take(expected_psn_)) {
    SLUICE_INVARIANT_DEBUG(incoming_bytes_ > 0 && incoming_bytes_ <= write_bytes_, buffer_bounds);
    const std::uint32_t bytes = smaller_of(incoming_bytes_, path_.mtu());
    expected_psn_ = psn_add(expected_psn_, 1);
    write_address_ += bytes;
    incoming_bytes_ -= bytes;
    if (incoming_bytes_ > 0) continue;
    incoming_ = Incoming::None;
    msn_ = psn_add(msn_, 1);
  }
  return expected_psn_ != before;
}

/// Passes the placed packets after the request that closed the gap. Returns the kept packet that follows
/// them, or null.
const Packet* Responder::next_kept() noexcept {
  gap_.on_progress();
  if (answer_ == Answer::Nak) answer_ = Answer::Ack;
  while (pass_placed()) {
  }
  return device_.early_packets().find(early_, expected_psn_);
}

/// Acknowledges the kept packets that have been executed, if any, and schedules a NAK for the next gap.
void Responder::continue_behind_gap(bool passed) noexcept {
  if (passed) answer(Answer::Ack);
  if (gap_.state() == RequestGap::State::AwaitingReceive) return answer(Answer::Nak);
  if (psn_distance(expected_psn_, gap_.highest_psn()) < 0) return forget_gap();
  // If packets were kept, another one is missing after them. If none was kept, the peer may be retransmitting
  // the rest.
  if (passed) {
    ++device_.stats().sequence_errors;
    gap_.move_behind_kept();
    return schedule_nak();
  }
  gap_.await_peer(device_.now_ns(), path_.round_trip());
}

/// Handles a duplicate request. Duplicate Sends and Writes are acknowledged again but not executed; RDMA
/// Reads are executed (9.7.5.1.4).
void Responder::on_duplicate(const Packet& packet) noexcept {
  ++device_.stats().duplicates;
  if (packet.kind.unsupported) return;  // it was never executed
  if (packet.bth.opcode == Opcode::ReadRequest) return on_duplicate_read(packet);
  answer(Answer::Ack);
}

/// Inserts a duplicate RDMA Read so that the queue stays in PSN order. Pending responses are not sent twice:
/// if the Read is being answered, the new request replaces the remainder when it reaches as far. Otherwise
/// the new request is answered before the remainder.
void Responder::on_duplicate_read(const Packet& packet) noexcept {
  ++device_.stats().duplicate_reads;
  const Reth& reth = packet.reth;
  const std::uint32_t psn = packet.bth.psn;
  const std::uint32_t packets = path_.packets_of(reth.length);
  if (reth.length > kMaxMessageBytes || psn_distance(psn_add(psn, packets), expected_psn_) < 0) return;
  if (reth.length > 0 && device_.memory().remote(static_cast<Rkey>(reth.rkey), reth.address, reth.length,
                                                 kRemoteRead, owner_) == nullptr)
    return;  // the window was invalidated since, so the requester has the data already
  ReadServed again{.first_psn = psn,
                   .packets = packets,
                   .msn = msn_,
                   .rkey = static_cast<Rkey>(reth.rkey),
                   .bytes = reth.length,
                   .address = reth.address,
                   .again = true};
  std::size_t at = 0;
  while (at < reads_.size() && psn_distance(psn_add(reads_[at].first_psn, reads_[at].packets), psn) >= 0)
    ++at;
  const bool within = at < reads_.size() && psn_distance(reads_[at].first_psn, psn) >= 0;
  if (within) {
    const ReadServed& read = reads_[at];
    const std::uint32_t end = psn_add(read.first_psn, read.packets);
    if (psn_distance(psn_add(read.first_psn, read.next), psn) >= 0) return;
    if (psn_distance(psn_add(psn, packets), end) <= 0) {
      again.again = read.again;
      reads_[at] = again;
      return;
    }
  }
  if (!reads_.push_back(again)) return;
  SLUICE_INVARIANT_DEBUG(at < reads_.size(), ring_index);
  for (std::size_t i = reads_.size() - 1; i > at; --i) reads_[i] = reads_[i - 1];
  reads_[at] = again;
}

EarlyPackets::EarlyPackets(std::size_t payload_bytes)
    : payload_bytes_(payload_bytes), entries_(kEarlyPackets), payloads_(kEarlyPackets * payload_bytes) {
  for (std::uint16_t i = 0; i < kEarlyPackets; ++i)
    entries_[i].next = static_cast<std::uint16_t>(i + 1 < kEarlyPackets ? i + 1 : kNone);
  free_ = {.first = 0, .count = kEarlyPackets};
}

bool EarlyPackets::add(Queue& queue, const Packet& packet) noexcept {
  std::uint16_t* at = &queue.first;
  while (*at != kNone && psn_distance(entries_[*at].packet.bth.psn, packet.bth.psn) > 0)
    at = &entries_[*at].next;
  if (*at != kNone && entries_[*at].packet.bth.psn == packet.bth.psn) return true;
  if (queue.count == kEarlyPacketsPerQueuePair || free_.count == 0 || packet.payload.size() > payload_bytes_)
    return false;
  const std::uint16_t index = free_.first;
  SLUICE_INVARIANT_DEBUG(index < entries_.size(), table_index);
  Entry& entry = entries_[index];
  free_.first = entry.next;
  --free_.count;
  entry.packet = packet;
  if (!packet.payload.empty()) std::memcpy(payload(index), packet.payload.data(), packet.payload.size());
  entry.packet.payload = {payload(index), packet.payload.size()};
  entry.next = *at;
  *at = index;
  SLUICE_INVARIANT_DEBUG(queue.count < kEarlyPacketsPerQueuePair, pool_balance);
  ++queue.count;
  return true;
}

const Packet* EarlyPackets::find(Queue& queue, std::uint32_t psn) noexcept {
  while (queue.first != kNone && psn_distance(entries_[queue.first].packet.bth.psn, psn) > 0)
    drop_first(queue);
  if (queue.first == kNone || entries_[queue.first].packet.bth.psn != psn) return nullptr;
  return &entries_[queue.first].packet;
}

void EarlyPackets::release(Queue& queue) noexcept {
  while (queue.first != kNone) drop_first(queue);
  static_cast<void>(SLUICE_INVARIANT(queue.count == 0, pool_balance));
}

void EarlyPackets::drop_first(Queue& queue) noexcept {
  if (!SLUICE_INVARIANT(queue.count > 0 && queue.first < entries_.size(), list_membership)) {
    queue.first = kNone;
    return;
  }
  const std::uint16_t index = queue.first;
  queue.first = entries_[index].next;
  --queue.count;
  entries_[index].next = free_.first;
  free_.first = index;
  ++free_.count;
  static_cast<void>(SLUICE_INVARIANT(free_.count <= kEarlyPackets, pool_balance));
}

}  // namespace sluice::rdma::softroce
