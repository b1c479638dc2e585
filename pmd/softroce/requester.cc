// SPDX-License-Identifier: Apache-2.0
//
// Requester half of a queue pair: sending (InfiniBand 9.7.2, 9.7.3).

#include "dataplane/base/invariant.h"
#include "dataplane/base/small_algorithms.h"
#include "pmd/softroce/device.h"
#include "pmd/softroce/queue_pair.h"

namespace sluice::rdma::softroce {
namespace {

/// Opcodes of packets by their position in a message.
struct DataOpcodes {
  Opcode first, middle, last, only;

  constexpr Opcode at(bool is_first, bool is_last) const noexcept {
    return is_first ? (is_last ? only : first) : (is_last ? last : middle);
  }
};
/// Packet opcodes, indexed by SendOpcode. Operations that send no data have none.
constexpr DataOpcodes kDataOpcodes[] = {
    {Opcode::SendFirst, Opcode::SendMiddle, Opcode::SendLast, Opcode::SendOnly},
    {Opcode::SendFirst, Opcode::SendMiddle, Opcode::SendLastWithInvalidate, Opcode::SendOnlyWithInvalidate},
    {Opcode::WriteFirst, Opcode::WriteMiddle, Opcode::WriteLast, Opcode::WriteOnly},
    {},
    {},
    {Opcode::SendFirst, Opcode::SendMiddle, Opcode::SendLastWithImmediate, Opcode::SendOnlyWithImmediate},
    {Opcode::WriteFirst, Opcode::WriteMiddle, Opcode::WriteLastWithImmediate,
     Opcode::WriteOnlyWithImmediate}};
static_assert(static_cast<int>(SendOpcode::SendWithInvalidate) == 1 &&
              static_cast<int>(SendOpcode::RdmaWrite) == 2 &&
              static_cast<int>(SendOpcode::SendWithImmediate) == 5 &&
              static_cast<int>(SendOpcode::RdmaWriteWithImmediate) == 6);

}  // namespace

void SoftQueuePair::add_entry(const SendWr& wr) noexcept {
  SLUICE_INVARIANT_DEBUG(tail_ - head_ <= send_mask_, ring_index);
  SendEntry& added = entry(tail_);
  added = {.wr_id = wr.wr_id,
           .remote_address = wr.remote_address,
           .rkey = wr.rkey,
           .immediate = wr.immediate,
           .sge_count = static_cast<std::uint16_t>(smaller_of<std::size_t>(wr.sges.size(), max_sge_)),
           .opcode = wr.opcode,
           .flags = wr.flags};
  if (wr.sges.size() > max_sge_) added.status = WcStatus::LocalLengthError;
  Sge* sges = sges_of(tail_);
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < added.sge_count; ++i) {
    const auto [address, length, lkey] = wr.sges[i];  // loads have the width of the stores
    sges[i] = {address, length, lkey};
    bytes += length;
    if (!device_.memory().local_access({address, length, lkey}))
      added.status = WcStatus::LocalProtectionError;
  }
  if (bytes > device_.limits().max_message_bytes) added.status = WcStatus::LocalLengthError;
  added.bytes = static_cast<std::uint32_t>(bytes);
  ++tail_;
}

// --- Sending

bool SoftQueuePair::may_send_more() const noexcept {
  if (next_ == tail_ || rnr_wait_) return false;
  const SendEntry& work = send_queue_[next_ & send_mask_];
  if (work.status != WcStatus::Success) return false;
  if (work.opcode == SendOpcode::LocalInvalidate) return true;
  if (psns_.in_flight() >= window_.packets()) return false;
  if (next_ == started_ && (work.flags & kFence) != 0 && reads_pending_ > 0) return false;
  return work.opcode != SendOpcode::RdmaRead || reads_pending_ < attributes_.initiator_depth;
}

/// Returns true if the rate does not allow a packet yet, after setting the timer for that packet.
bool SoftQueuePair::wait_for_rate() noexcept {
  pace_until_ns_ = rate_.wait_until(device_.now_ns());
  if (pace_until_ns_ == 0) return false;
  set_deadline();
  return true;
}

void SoftQueuePair::transmit_requests(std::uint32_t budget) noexcept {
  std::uint32_t sent = 0;
  bool local_work = false;
  while (sent < budget && may_send_more()) {
    if (wait_for_rate()) break;
    SendEntry& work = entry(next_);
    if (next_ == started_ && !start(work)) {
      local_work = true;
      break;
    }
    if (work.packets == 0) {
      ++next_;
      local_work = true;
      continue;
    }
    if (!SLUICE_INVARIANT(psn_add(work.first_psn, next_packet_) == psns_.next(), psn_window))
      return to_error();
    const bool again = psns_.retransmitting();
    const bool reading = work.opcode == SendOpcode::RdmaRead;
    const std::uint32_t packets =
        reading ? send_read_request(work, next_packet_) : send_data_packet(next_, next_packet_, false);
    if (packets == 0) break;
    reads_pending_ += reading;
    SLUICE_INVARIANT_DEBUG(reads_pending_ <= attributes_.initiator_depth, credit_balance);
    const std::uint32_t end = psns_.end();
    if (!psns_.sent(packets)) return to_error();
    next_packet_ += packets;
    SLUICE_INVARIANT_DEBUG(next_packet_ <= work.packets, psn_window);
    ++sent;
    if (again) ++device_.stats().packets_sent_again;
    // A packet without an acknowledge request is acknowledged together with a later packet, which gives no
    // valid round-trip sample.
    if (psns_.end() != end && timed_since_ns_ == 0 && since_ack_request_ == 0) {
      timed_psn_ = psn_add(psns_.end(), kPsnMask);  // the last one sent
      timed_since_ns_ = device_.now_ns();
    }
    if (next_packet_ == work.packets) {
      next_packet_ = 0;
      do ++next_;
      while (next_ != started_ && entry(next_).packets == 0);  // executed before going back
    }
    if (retry_at_ns_ == 0 || rate_.limited()) restart_timer();
  }
  if (local_work || (next_ != tail_ && entry(next_).status != WcStatus::Success)) complete_sends();
}

/// Assigns PSNs to an entry, or executes it if it is local work. Returns false if the work failed.
bool SoftQueuePair::start(SendEntry& work) noexcept {
  SLUICE_INVARIANT_DEBUG(started_ != tail_ && &work == &entry(started_), ring_index);
  ++started_;
  work.first_psn = psns_.end();
  if (work.opcode != SendOpcode::LocalInvalidate) {
    work.packets = packets_of(work.bytes);
    return true;
  }
  work.packets = 0;
  work.done = device_.memory().invalidate(work.rkey, *this);
  if (!work.done) work.status = WcStatus::BindError;
  return work.done;
}

/// Requests the responses from `number` to the end of their request (kReadRequestPackets). Returns the number
/// of responses, or zero if the caller has to try again later.
std::uint32_t SoftQueuePair::send_read_request(const SendEntry& work, std::uint32_t number) noexcept {
  const std::uint32_t end =
      smaller_of(work.packets, (number / kReadRequestPackets + 1) * kReadRequestPackets);
  const std::uint32_t offset = number * path_mtu_;
  SLUICE_INVARIANT_DEBUG(number < work.packets && number < end, psn_window);
  SLUICE_INVARIANT_DEBUG(offset <= work.bytes, buffer_bounds);
  Packet packet;
  packet.bth.opcode = Opcode::ReadRequest;
  packet.bth.psn = psn_add(work.first_psn, number);
  packet.bth.ack_request = true;
  packet.reth = {work.remote_address + offset, static_cast<std::uint32_t>(work.rkey),
                 smaller_of(work.bytes - offset, (end - number) * path_mtu_)};
  if (!send_without_payload(packet)) return 0;
  since_ack_request_ = 0;
  return end - number;
}

/// Reports whether no request follows the entry on the wire for now, so that no other packet would request
/// its acknowledgement.
bool SoftQueuePair::last_on_the_wire(std::uint32_t index) noexcept {
  for (std::uint32_t i = index + 1; i != tail_; ++i) {
    const SendEntry& work = entry(i);
    if (work.status != WcStatus::Success) return true;
    if (work.opcode != SendOpcode::LocalInvalidate) return false;
  }
  return true;
}

/// Sends packet `number` of a Send or Write. `ask` requests an acknowledgement even if none is due. Returns
/// false if the caller has to try again later.
bool SoftQueuePair::send_data_packet(std::uint32_t index, std::uint32_t number, bool ask) noexcept {
  SendEntry& work = entry(index);
  const bool first = number == 0;
  const bool last = number + 1 == work.packets;
  const std::uint32_t offset = number * path_mtu_;
  SLUICE_INVARIANT_DEBUG(index - head_ < started_ - head_ && number < work.packets, psn_window);
  SLUICE_INVARIANT_DEBUG(offset <= work.bytes, buffer_bounds);
  SLUICE_INVARIANT_DEBUG(work.opcode != SendOpcode::RdmaRead && work.opcode != SendOpcode::LocalInvalidate,
                         queue_pair_state);
  const std::uint32_t bytes = smaller_of(work.bytes - offset, path_mtu_);
  Packet packet;
  packet.bth.opcode = kDataOpcodes[static_cast<std::size_t>(work.opcode)].at(first, last);
  packet.bth.psn = psn_add(work.first_psn, number);
  packet.bth.solicited = last && (work.flags & kSolicited) != 0;
  packet.bth.ack_request = ask || psns_.in_flight() + 1 >= window_.packets() ||
                           ++since_ack_request_ >= kAckRequestInterval || (last && last_on_the_wire(index));
  packet.reth = {work.remote_address, static_cast<std::uint32_t>(work.rkey), work.bytes};
  packet.immediate = work.immediate;
  packet.invalidate_rkey = static_cast<std::uint32_t>(work.rkey);
  const std::size_t pieces = gather(index, offset, bytes);
  if (!send_packet(packet, {pieces_.data(), pieces}, work.read_until)) return false;
  rate_.charge(bytes, device_.now_ns());
  if (packet.bth.ack_request) since_ack_request_ = 0;
  return true;
}

/// Fills pieces_ with `bytes` of an entry's memory from `offset` on. Continues at the position of the last
/// call.
std::size_t SoftQueuePair::gather(std::uint32_t index, std::uint32_t offset, std::uint32_t bytes) noexcept {
  const SendEntry& work = entry(index);
  const Sge* sges = sges_of(index);
  SLUICE_INVARIANT_DEBUG(offset <= work.bytes && bytes <= work.bytes - offset, buffer_bounds);
  SLUICE_INVARIANT_DEBUG(work.sge_count <= max_sge_, buffer_bounds);
  if (work.sge_count == 1) {
    pieces_[0] = {sges->address + offset, bytes};
    return bytes > 0 ? 1 : 0;
  }
  if (gather_entry_ != index || offset < gather_sge_start_ || offset == 0) {
    gather_entry_ = index;
    gather_sge_ = gather_sge_start_ = 0;
  }
  std::size_t count = 0;
  while (bytes > 0 && gather_sge_ < work.sge_count) {
    const Sge& sge = sges[gather_sge_];
    const std::uint32_t within = offset - gather_sge_start_;
    if (within >= sge.length) {
      gather_sge_start_ += sge.length;
      ++gather_sge_;
      continue;
    }
    const std::uint32_t piece = smaller_of(sge.length - within, bytes);
    pieces_[count++] = {sge.address + within, piece};
    offset += piece;
    bytes -= piece;
    SLUICE_INVARIANT_DEBUG(count <= pieces_.size(), buffer_bounds);
  }
  SLUICE_INVARIANT_DEBUG(bytes == 0, buffer_bounds);
  return count;
}

}  // namespace sluice::rdma::softroce
