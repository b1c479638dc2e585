// SPDX-License-Identifier: Apache-2.0
//
// Responder half of a queue pair: requests that come before or after their turn (InfiniBand 9.7.5.1).
//
// A packet of an RDMA Write says by its PSN where it belongs, as long as its message has begun: it is placed
// although an earlier one is missing. It is executed, and acknowledged, in its turn. Packets of later messages
// are not kept: they could write where an earlier message has still to write.
#include <algorithm>
#include <cstring>

#include "pmd/softroce/device.h"
#include "pmd/softroce/queue_pair.h"

namespace sluice::rdma::softroce {

/// A gap is told when it is first seen. It is told again when a packet comes that is not behind the latest one,
/// which means that the peer has gone back and that the missing packet was lost again; and, for what that does
/// not show, after kNakAgainNs.
void SoftQueuePair::on_early(const Packet& packet) noexcept {
  if (nak_sent_ && nak_syndrome_ == Syndrome::RnrNak) return;
  keep(packet);
  const std::uint32_t psn = packet.bth.psn;
  const bool first = !nak_sent_;
  const bool again =
      nak_sent_ && (psn_distance(early_psn_, psn) <= 0 || device_.now_ns() - nak_ns_ >= kNakAgainNs);
  if (first || psn_distance(highest_psn_, psn) > 0) highest_psn_ = psn;
  early_psn_ = psn;
  if (!first && !again) return;
  device_.stats().sequence_errors += first;
  schedule_nak(Syndrome::Nak, static_cast<std::uint8_t>(NakCode::SequenceError));
}

/// Places a packet of the Write in progress. One that is wrong in any way is refused when its turn comes.
void SoftQueuePair::keep(const Packet& packet) noexcept {
  const auto ahead = static_cast<std::uint32_t>(psn_distance(expected_psn_, packet.bth.psn));
  if (incoming_ != Incoming::Write || !packet.kind.write || packet.kind.first || packet.kind.has_immediate ||
      ahead >= kMaxKeptPackets || kept_.holds(packet.bth.psn) || !length_fits(packet))
    return;
  const std::uint32_t offset = ahead * path_mtu_;
  if (offset >= incoming_bytes_) return;
  const std::uint32_t rest = incoming_bytes_ - offset;
  const std::uint32_t bytes = std::min(rest, path_mtu_);
  if (packet.payload.size() != bytes || packet.kind.last != (rest <= path_mtu_)) return;
  std::byte* to = device_.memory().remote(write_rkey_, write_address_ + offset, bytes, kRemoteWrite, *this);
  if (to == nullptr) return;
  std::memcpy(to, packet.payload.data(), bytes);
  kept_.add(packet.bth.psn);
  ++device_.stats().packets_kept;
}

/// Executes the packets that were kept and whose turn has come. If another one is missing behind them, that is
/// known already.
void SoftQueuePair::pass_kept() noexcept {
  bool passed = false;
  while (incoming_ == Incoming::Write && kept_.take(expected_psn_)) {
    const std::uint32_t bytes = std::min(incoming_bytes_, path_mtu_);
    expected_psn_ = psn_add(expected_psn_, 1);
    write_address_ += bytes;
    incoming_bytes_ -= bytes;
    passed = true;
    if (incoming_bytes_ > 0) continue;
    incoming_ = Incoming::None;
    msn_ = psn_add(msn_, 1);
  }
  if (!passed) return;
  ack_pending_ = true;
  schedule_transmit();
  if (psn_distance(expected_psn_, highest_psn_) < 0) return;
  ++device_.stats().sequence_errors;
  early_psn_ = highest_psn_;
  schedule_nak(Syndrome::Nak, static_cast<std::uint8_t>(NakCode::SequenceError));
}

/// Duplicate Sends and Writes are acknowledged again but not executed; RDMA Reads are executed (9.7.5.1.4).
void SoftQueuePair::on_duplicate(const Packet& packet) noexcept {
  ++device_.stats().duplicates;
  if (packet.kind.unsupported) return;  // was never executed
  if (packet.bth.opcode == Opcode::ReadRequest) return on_duplicate_read(packet);
  ack_pending_ = true;
  schedule_transmit();
}

/// Keeps the queue in PSN order. What is still to be sent is not sent twice: of a Read that is being answered,
/// the new request replaces the rest if it reaches as far, and else is answered before that.
void SoftQueuePair::on_duplicate_read(const Packet& packet) noexcept {
  ++device_.stats().duplicate_reads;
  const Reth& reth = packet.reth;
  const std::uint32_t psn = packet.bth.psn;
  const std::uint32_t packets = packets_of(reth.length);
  if (reth.length > kMaxMessageBytes || psn_distance(psn_add(psn, packets), expected_psn_) < 0) return;
  if (reth.length > 0 && device_.memory().remote(static_cast<Rkey>(reth.rkey), reth.address, reth.length,
                                                 kRemoteRead, *this) == nullptr)
    return;  // invalidated since, so the requester has the data already
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
      return schedule_transmit();
    }
  }
  if (!reads_.push_back(again)) return;
  for (std::size_t i = reads_.size() - 1; i > at; --i) reads_[i] = reads_[i - 1];
  reads_[at] = again;
  schedule_transmit();
}

}  // namespace sluice::rdma::softroce
