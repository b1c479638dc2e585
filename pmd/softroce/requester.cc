// SPDX-License-Identifier: Apache-2.0
//
// Requester half of a queue pair: InfiniBand 9.7.2, 9.7.3, 9.7.5 and 9.7.6 (retries). Go-back-N.
#include <algorithm>
#include <cstring>

#include "pmd/softroce/device.h"
#include "pmd/softroce/queue_pair.h"

namespace sluice::rdma::softroce {
namespace {

struct DataOpcodes {
  Opcode first, middle, last, only;
};
constexpr DataOpcodes data_opcodes(SendOpcode opcode) noexcept {
  switch (opcode) {
    case SendOpcode::SendWithInvalidate:
      return {Opcode::SendFirst, Opcode::SendMiddle, Opcode::SendLastWithInvalidate,
              Opcode::SendOnlyWithInvalidate};
    case SendOpcode::SendWithImmediate:
      return {Opcode::SendFirst, Opcode::SendMiddle, Opcode::SendLastWithImmediate,
              Opcode::SendOnlyWithImmediate};
    case SendOpcode::RdmaWrite:
      return {Opcode::WriteFirst, Opcode::WriteMiddle, Opcode::WriteLast, Opcode::WriteOnly};
    case SendOpcode::RdmaWriteWithImmediate:
      return {Opcode::WriteFirst, Opcode::WriteMiddle, Opcode::WriteLastWithImmediate,
              Opcode::WriteOnlyWithImmediate};
    default:
      return {Opcode::SendFirst, Opcode::SendMiddle, Opcode::SendLast, Opcode::SendOnly};
  }
}

}  // namespace

void SoftQueuePair::add_entry(const SendWr& wr) noexcept {
  SendEntry& added = entry(tail_);
  added = {.wr_id = wr.wr_id,
           .remote_address = wr.remote_address,
           .rkey = wr.rkey,
           .immediate = wr.immediate,
           .sge_count = static_cast<std::uint16_t>(std::min<std::size_t>(wr.sges.size(), max_sge_)),
           .opcode = wr.opcode,
           .flags = wr.flags};
  if (wr.sges.size() > max_sge_) added.status = WcStatus::LocalLengthError;
  Sge* sges = sges_of(tail_);
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < added.sge_count; ++i) {
    sges[i] = wr.sges[i];
    bytes += sges[i].length;
    if (!device_.memory().local_access(sges[i])) added.status = WcStatus::LocalProtectionError;
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

void SoftQueuePair::transmit_requests(std::uint32_t budget) noexcept {
  std::uint32_t sent = 0;
  bool local_work = false;
  while (sent < budget && may_send_more()) {
    const std::uint64_t wait = rate_.wait_until(device_.now_ns());
    if (wait != 0) {
      pace_until_ns_ = wait;
      if (deadline_ns_ == 0 || wait < deadline_ns_) set_deadline(wait);
      break;
    }
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
    const std::uint32_t packets = reading ? send_read_request(work) : send_data_packet(work);
    if (packets == 0) break;
    const std::uint32_t end = psns_.end();
    if (!psns_.sent(packets)) return to_error();
    next_packet_ += packets;
    ++sent;
    if (again) ++device_.stats().packets_sent_again;
    if (psns_.end() != end && timed_since_ns_ == 0) {
      timed_psn_ = psn_add(psns_.end(), kPsnMask);  // the last one sent
      timed_since_ns_ = device_.now_ns();
    }
    if (next_packet_ == work.packets) {
      ++next_;
      next_packet_ = 0;
    }
    if (deadline_ns_ == 0) restart_timer();
  }
  if (local_work || (next_ != tail_ && entry(next_).status != WcStatus::Success)) complete_sends();
}

/// Assigns PSNs to an entry, or executes it if it is local work. False: that failed.
bool SoftQueuePair::start(SendEntry& work) noexcept {
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

/// Returns the number of response packets asked for; zero: try again later.
std::uint32_t SoftQueuePair::send_read_request(const SendEntry& work) noexcept {
  const std::uint32_t end =
      std::min(work.packets, (next_packet_ / kReadRequestPackets + 1) * kReadRequestPackets);
  const std::uint32_t offset = next_packet_ * path_mtu_;
  Packet packet;
  packet.bth.opcode = Opcode::ReadRequest;
  packet.bth.psn = psns_.next();
  packet.bth.ack_request = true;
  packet.reth = {work.remote_address + offset, static_cast<std::uint32_t>(work.rkey),
                 std::min(work.bytes - offset, (end - next_packet_) * path_mtu_)};
  if (!send_packet(packet, {})) return 0;
  ++reads_pending_;
  since_ack_request_ = 0;
  return end - next_packet_;
}

/// Returns the number of packets sent, one; zero: try again later.
std::uint32_t SoftQueuePair::send_data_packet(const SendEntry& work) noexcept {
  const bool first = next_packet_ == 0;
  const bool last = next_packet_ + 1 == work.packets;
  const std::uint32_t offset = next_packet_ * path_mtu_;
  const std::uint32_t bytes = std::min(work.bytes - offset, path_mtu_);
  const DataOpcodes opcodes = data_opcodes(work.opcode);
  Packet packet;
  packet.bth.opcode = first ? (last ? opcodes.only : opcodes.first) : (last ? opcodes.last : opcodes.middle);
  packet.bth.psn = psns_.next();
  packet.bth.solicited = last && (work.flags & kSolicited) != 0;
  const bool window_ends = psns_.in_flight() + 1 >= window_.packets();
  packet.bth.ack_request =
      (last && next_ + 1 == tail_) || window_ends || ++since_ack_request_ >= kAckRequestInterval;
  packet.reth = {work.remote_address, static_cast<std::uint32_t>(work.rkey), work.bytes};
  packet.immediate = work.immediate;
  packet.invalidate_rkey = static_cast<std::uint32_t>(work.rkey);
  const std::size_t pieces = gather(next_, offset, bytes);
  if (!send_packet(packet, {pieces_.data(), pieces})) return 0;
  rate_.charge(bytes, device_.now_ns());
  if (packet.bth.ack_request) since_ack_request_ = 0;
  return 1;
}

/// Fills pieces_ with `bytes` of an entry's memory from `offset` on, continuing at the last call's position.
std::size_t SoftQueuePair::gather(std::uint32_t index, std::uint32_t offset, std::uint32_t bytes) noexcept {
  if (gather_entry_ != index || offset < gather_sge_start_ || offset == 0) {
    gather_entry_ = index;
    gather_sge_ = gather_sge_start_ = 0;
  }
  const SendEntry& work = entry(index);
  const Sge* sges = sges_of(index);
  std::size_t count = 0;
  while (bytes > 0 && gather_sge_ < work.sge_count) {
    const Sge& sge = sges[gather_sge_];
    const std::uint32_t within = offset - gather_sge_start_;
    if (within >= sge.length) {
      gather_sge_start_ += sge.length;
      ++gather_sge_;
      continue;
    }
    const std::uint32_t piece = std::min(sge.length - within, bytes);
    pieces_[count++] = {sge.address + within, piece};
    offset += piece;
    bytes -= piece;
  }
  return count;
}

// --- Acknowledgements and responses

void SoftQueuePair::on_response(const Packet& packet) noexcept {
  // Acknowledges a PSN that was not sent (stale packet of an earlier connection, or forged), or an old one.
  if (!psns_.contains(packet.bth.psn)) {
    ++device_.stats().stale_responses;
    return;
  }
  if (packet.kind.read_response)
    on_read_response(packet);
  else
    on_acknowledge(packet);
  if (state_ != State::ReadyToSend) return;
  complete_sends();
  if (state_ == State::ReadyToSend && may_send_more()) schedule_transmit();
}

void SoftQueuePair::on_acknowledge(const Packet& packet) noexcept {
  Statistics& stats = device_.stats();
  const std::uint32_t psn = packet.bth.psn;
  switch (packet.aeth.syndrome) {
    case Syndrome::Ack:
      ++stats.acks_received;
      return acknowledge_through(psn);
    case Syndrome::RnrNak:
      ++stats.rnr_naks_received;
      if (psn != psns_.unacknowledged()) acknowledge_through(psn_add(psn, kPsnMask));
      if (psn == psns_.unacknowledged()) on_rnr_nak(packet.aeth.value);
      return;
    case Syndrome::Nak:
      break;
    default:
      ++stats.stale_responses;
      return;
  }
  ++stats.naks_received;
  if (psn != psns_.unacknowledged()) acknowledge_through(psn_add(psn, kPsnMask));
  complete_sends();
  switch (static_cast<NakCode>(packet.aeth.value)) {
    case NakCode::SequenceError:
      if (psn != psns_.unacknowledged())
        return;  // an earlier RDMA Read lacks responses and is being retransmitted
      window_.on_loss();
      return go_back();
    case NakCode::InvalidRequest:
      return fail(WcStatus::RemoteInvalidRequest);
    case NakCode::RemoteAccess:
      return fail(WcStatus::RemoteAccessError);
    default:
      return fail(WcStatus::RemoteOperationError);
  }
}

/// The peer has received everything up to `psn`. If responses of an RDMA Read before it are missing, they
/// were lost: retransmits from there.
void SoftQueuePair::acknowledge_through(std::uint32_t psn) noexcept {
  for (std::uint32_t i = head_; i != started_; ++i) {
    const SendEntry& work = entry(i);
    if (work.packets == 0) continue;
    if (psn_distance(work.first_psn, psn) < 0) break;
    if (work.opcode != SendOpcode::RdmaRead || work.packets_received == work.packets) continue;
    acknowledge_before(psn_add(work.first_psn, work.packets_received));
    if (!went_back_) {
      window_.on_loss();
      go_back();
    }
    return;
  }
  acknowledge_before(psn_add(psn, 1));
}

void SoftQueuePair::acknowledge_before(std::uint32_t psn) noexcept {
  const std::int32_t packets = psn_distance(psns_.unacknowledged(), psn);
  if (packets <= 0) return;
  const bool before_retransmission = psn_distance(psns_.next(), psn) > 0;
  if (!psns_.acknowledge_before(psn)) return to_error();
  if (timed_since_ns_ != 0 && psn_distance(timed_psn_, psn) > 0) {
    round_trip_.sample(device_.now_ns() - timed_since_ns_);
    timed_since_ns_ = 0;
  }
  window_.on_acknowledged(static_cast<std::uint32_t>(packets));
  went_back_ = false;
  retries_ = 0;
  rnr_rounds_ = 0;
  rnr_wait_ = false;
  last_progress_ns_ = device_.now_ns();
  if (before_retransmission) reposition();
  restart_timer();
}

void SoftQueuePair::on_read_response(const Packet& packet) noexcept {
  Statistics& stats = device_.stats();
  const std::uint32_t psn = packet.bth.psn;
  // The oldest incomplete RDMA Read; this response acknowledges everything before it.
  std::uint32_t index = head_;
  while (index != started_ && (entry(index).opcode != SendOpcode::RdmaRead ||
                               entry(index).packets_received == entry(index).packets))
    ++index;
  if (index == started_) {
    ++stats.stale_responses;
    return;
  }
  SendEntry& work = entry(index);
  const std::uint32_t expected = psn_add(work.first_psn, work.packets_received);
  if (psn != expected) {
    if (psn_distance(expected, psn) < 0) {
      ++stats.stale_responses;
      return;
    }
    acknowledge_before(expected);
    if (!went_back_) {
      window_.on_loss();
      go_back();
    }
    return;
  }
  const std::uint32_t offset = work.packets_received * path_mtu_;
  const std::uint32_t bytes = std::min(work.bytes - offset, path_mtu_);
  if (packet.payload.size() != bytes) return fail(WcStatus::RemoteOperationError);
  const std::size_t pieces = gather(index, offset, bytes);
  const std::byte* from = packet.payload.data();
  for (std::size_t i = 0; i < pieces; ++i) {
    std::memcpy(const_cast<std::byte*>(pieces_[i].data()), from, pieces_[i].size());
    from += pieces_[i].size();
  }
  ++work.packets_received;
  const bool request_ends =
      work.packets_received % kReadRequestPackets == 0 || work.packets_received == work.packets;
  if (request_ends && reads_pending_ > 0) --reads_pending_;
  acknowledge_before(psn_add(psn, 1));
}

/// Go-back-N: retransmits from the oldest unacknowledged packet.
void SoftQueuePair::go_back() noexcept {
  ++device_.stats().go_backs;
  went_back_ = true;
  timed_since_ns_ = 0;  // no round-trip sample from a retransmitted packet (RFC 6298, section 3)
  since_ack_request_ = 0;
  reposition();
  schedule_transmit();
}

/// Makes the oldest unacknowledged packet the next one to send.
void SoftQueuePair::reposition() noexcept {
  reads_pending_ = 0;
  psns_.go_back();
  next_packet_ = 0;
  for (next_ = head_; next_ != started_; ++next_) {
    const SendEntry& work = entry(next_);
    const std::int32_t into = psn_distance(work.first_psn, psns_.unacknowledged());
    if (work.packets == 0 || into >= static_cast<std::int32_t>(work.packets)) continue;
    next_packet_ = static_cast<std::uint32_t>(std::max(into, 0));
    return;
  }
}

void SoftQueuePair::on_rnr_nak(std::uint8_t code) noexcept {
  if (attributes_.rnr_retry < 7 && rnr_rounds_ >= attributes_.rnr_retry)
    return fail(WcStatus::RnrRetryExceeded);
  ++rnr_rounds_;
  go_back();
  rnr_wait_ = true;
  last_progress_ns_ = device_.now_ns();
  set_deadline(device_.now_ns() + rnr_timer_ns(code));
}

void SoftQueuePair::complete_sends() noexcept {
  while (head_ != tail_) {
    SendEntry& work = entry(head_);
    if (work.status != WcStatus::Success) return fail(work.status);
    if (head_ == started_) return;
    if (work.packets == 0 ? !work.done
                          : psn_distance(psn_add(work.first_psn, work.packets), psns_.unacknowledged()) < 0)
      return;
    if (work.opcode == SendOpcode::RdmaRead && work.packets_received < work.packets) return;
    if (!SLUICE_INVARIANT(head_ != next_, psn_window)) return to_error();  // completed, but not sent
    Statistics& stats = device_.stats();
    switch (completion_opcode(work.opcode)) {
      case WcOpcode::Send:
        ++stats.sends;
        break;
      case WcOpcode::RdmaRead:
        ++stats.reads;
        break;
      case WcOpcode::RdmaWrite:
        ++stats.writes;
        break;
      default:
        break;
    }
    complete(work, WcStatus::Success);
  }
}

void SoftQueuePair::complete(SendEntry& work, WcStatus status) noexcept {
  ++head_;
  if (status == WcStatus::WrFlushError) ++device_.stats().flushed;
  if (status == WcStatus::Success && (work.flags & kSignaled) == 0) return;
  device_.complete({.wr_id = work.wr_id,
                    .byte_len = work.bytes,
                    .qp = number_,
                    .status = status,
                    .opcode = completion_opcode(work.opcode)});
}

// --- Timers

void SoftQueuePair::set_deadline(std::uint64_t at_ns) noexcept {
  deadline_ns_ = at_ns;
  device_.watch(*this);
}

void SoftQueuePair::restart_timer() noexcept {
  if (!outstanding()) {
    deadline_ns_ = 0;
    return;
  }
  if (deadline_ns_ == 0) last_progress_ns_ = device_.now_ns();
  const std::uint64_t timeout = device_.now_ns() + round_trip_.timeout_ns(retries_);
  set_deadline(pace_until_ns_ == 0 ? timeout : std::min(timeout, pace_until_ns_));
}

void SoftQueuePair::on_timer(std::uint64_t now_ns) noexcept {
  deadline_ns_ = 0;
  if (state_ != State::ReadyToSend) return;
  if (rnr_wait_) {
    rnr_wait_ = false;
    return schedule_transmit();
  }
  if (pace_until_ns_ != 0) {
    pace_until_ns_ = 0;
    if (outstanding()) set_deadline(now_ns + round_trip_.timeout_ns(retries_));
    return schedule_transmit();
  }
  if (!outstanding()) return;
  ++device_.stats().timeouts;
  const std::uint64_t patience =
      attributes_.ack_timeout == 0
          ? ~std::uint64_t{0}
          : ack_timeout_ns(attributes_.ack_timeout) * (std::uint64_t{attributes_.retry_count} + 1);
  // Both conditions: time also passes while this process does not run, and that must not end the connection.
  const bool retried = retries_ >= attributes_.retry_count;
  if (retried && now_ns - last_progress_ns_ >= patience) return fail(WcStatus::RetryExceeded);
  ++retries_;
  window_.on_timeout();
  go_back();
  set_deadline(now_ns + round_trip_.timeout_ns(retries_));
}

}  // namespace sluice::rdma::softroce
