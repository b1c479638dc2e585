// SPDX-License-Identifier: Apache-2.0
//
// Requester half of a queue pair: acknowledgements and read responses (InfiniBand 9.7.5), and recovery when
// they are missing (9.7.6).
//
// The wire preserves the order of packets, so a packet that was passed over was lost. Read responses after a
// missing one are placed, and the missing ones are requested again immediately. Requests are retransmitted
// from the missing one on (go-back-N), unless the peer has shown that it keeps packets after a missing one;
// then only the missing packet is retransmitted.
#include <cstring>

#include "dataplane/base/invariant.h"
#include "dataplane/base/small_algorithms.h"
#include "pmd/softroce/device.h"
#include "pmd/softroce/requester.h"

namespace sluice::rdma::softroce {

bool Requester::on_response(const Packet& packet) noexcept {
  SLUICE_INVARIANT_DEBUG(ordered(), psn_window);
  // The response acknowledges a PSN that was not sent (stale packet of an earlier connection, or forged), or
  // an old one.
  if (!psns_.contains(packet.bth.psn)) {
    ++device_.stats().stale_responses;
    return true;
  }
  const bool goes_on = packet.kind.read_response ? on_read_response(packet) : on_acknowledge(packet);
  return goes_on && complete_sends();
}

bool Requester::on_acknowledge(const Packet& packet) noexcept {
  Statistics& stats = device_.stats();
  const std::uint32_t psn = packet.bth.psn;
  switch (packet.aeth.syndrome) {
    case Syndrome::Ack:
      ++stats.acks_received;
      return answered_before(psn_add(psn, 1));
    case Syndrome::RnrNak:
      ++stats.rnr_naks_received;
      if (!answered_before(psn)) return false;
      return psn != psns_.unacknowledged() || on_rnr_nak(packet.aeth.value);
    case Syndrome::Nak:
      break;
    default:
      ++stats.stale_responses;
      return true;
  }
  ++stats.naks_received;
  if (!answered_before(psn) || !complete_sends()) return false;
  switch (static_cast<NakCode>(packet.aeth.value)) {
    case NakCode::SequenceError:
      on_sequence_error(psn);
      return true;
    case NakCode::InvalidRequest:
      return fail(WcStatus::RemoteInvalidRequest);
    case NakCode::RemoteAccess:
      return fail(WcStatus::RemoteAccessError);
    default:
      return fail(WcStatus::RemoteOperationError);
  }
}

/// Handles the information that the peer has executed everything before `psn`. Responses of earlier RDMA
/// Reads that have not arrived were lost.
bool Requester::answered_before(std::uint32_t psn) noexcept {
  const std::uint32_t answered = psn_distance(answered_, psn) > 0 ? psn : answered_;
  std::uint32_t complete = answered;
  for (std::uint32_t i = queue_.head; i != queue_.started; ++i) {
    const SendEntry& work = queue_.entry(i);
    if (work.packets == 0) continue;
    const std::int32_t into = psn_distance(work.first_psn, answered);
    if (into <= 0) break;
    const std::uint32_t end = smaller_of(work.packets, static_cast<std::uint32_t>(into));
    if (work.opcode != SendOpcode::RdmaRead || work.packets_received >= end) continue;
    if (complete == answered) complete = psn_add(work.first_psn, work.packets_received);
    const std::int32_t asked = psn_distance(work.first_psn, answered_);
    ask_again(work, larger_of(work.packets_received, static_cast<std::uint32_t>(larger_of(asked, 0))), end);
  }
  SLUICE_INVARIANT_DEBUG(psn_distance(answered, psns_.end()) >= 0, psn_window);
  SLUICE_INVARIANT_DEBUG(psn_distance(complete, answered) >= 0, psn_window);
  answered_ = answered;
  return acknowledge_before(complete);
}

/// Requests again the responses from `from` to before `end` that have not arrived.
void Requester::ask_again(const SendEntry& work, std::uint32_t from, std::uint32_t end) noexcept {
  SLUICE_INVARIANT_DEBUG(work.opcode == SendOpcode::RdmaRead && end <= work.packets, psn_window);
  for (;;) {
    while (from < end && responses_.holds(psn_add(work.first_psn, from))) ++from;
    if (from >= end) return;
    cut_window(psn_add(work.first_psn, from));
    const std::uint32_t packets = send_read_request(work, from);
    if (packets == 0) return;  // handled as if the request was lost
    timed_since_ns_ = 0;
    ++device_.stats().repairs;
    from += packets;
  }
}

bool Requester::acknowledge_before(std::uint32_t psn) noexcept {
  const std::int32_t packets = psn_distance(psns_.unacknowledged(), psn);
  if (packets <= 0) return true;
  const bool unsent = psn_distance(psns_.next(), psn) > 0;  // since going back
  if (!psns_.acknowledge_before(psn)) return false;
  if (timed_since_ns_ != 0 && psn_distance(timed_psn_, psn) > 0) {
    path_.round_trip().sample(device_.now_ns() - timed_since_ns_);
    timed_since_ns_ = 0;
  } else if (retries_ == 0) {
    path_.round_trip().on_progress();
  }
  if (window_.after_timeout())
    device_.stats().spurious_timeouts +=
        window_.undoes_timeout(device_.now_ns() - repaired_ns_, path_.round_trip().smoothed_ns());
  window_.on_acknowledged(static_cast<std::uint32_t>(packets));
  repaired_ = probed_ = false;
  retries_ = 0;
  rnr_rounds_ = 0;
  rnr_wait_ = false;
  last_progress_ns_ = device_.now_ns();
  if (psn_distance(cut_until_, psn) > 0) cut_until_ = psn;
  if (psn_distance(answered_, psn) > 0) answered_ = psn;
  if (unsent) {
    peer_keeps_ = peer_keeps_ || after_nak_;
    reposition();
  }
  restart_timer();
  if (!single_ || psn_distance(single_psn_, psn) <= 0) return true;
  single_ = false;
  // The peer has kept none of the packets after the one that it missed.
  if (psn == psn_add(single_psn_, 1) && psns_.outstanding()) go_back();
  return true;
}

// --- RDMA Read responses

bool Requester::on_read_response(const Packet& packet) noexcept {
  Statistics& stats = device_.stats();
  const std::uint32_t psn = packet.bth.psn;
  const std::uint32_t index = queue_.find(psn);
  if (index == queue_.started || queue_.entry(index).opcode != SendOpcode::RdmaRead) {
    ++stats.stale_responses;
    return true;
  }
  const SendEntry& work = queue_.entry(index);
  const auto number = static_cast<std::uint32_t>(psn_distance(work.first_psn, psn));
  SLUICE_INVARIANT_DEBUG(number < work.packets && work.packets_received <= work.packets, psn_window);
  if (number < work.packets_received || responses_.holds(psn)) {
    ++stats.stale_responses;
    return true;
  }
  if (packet.payload.size() != smaller_of(work.bytes - number * path_.mtu(), path_.mtu()))
    return fail(WcStatus::RemoteOperationError);
  place_response(index, number, packet);
  responses_.add(psn);
  pass_responses();
  if (responses_.holds(psn)) ++stats.packets_kept;
  return answered_before(psn_add(psn, 1));
}

void Requester::place_response(std::uint32_t index, std::uint32_t number, const Packet& packet) noexcept {
  const std::byte* from = packet.payload.data();
  for (const auto piece :
       queue_.gather(index, number * path_.mtu(), static_cast<std::uint32_t>(packet.payload.size()))) {
    std::memcpy(const_cast<std::byte*>(piece.data()), from, piece.size());
    from += piece.size();
  }
  SLUICE_INVARIANT_DEBUG(from == packet.payload.data() + packet.payload.size(), buffer_bounds);
}

/// Counts the responses that have arrived without a gap, one RDMA Read after the other.
void Requester::pass_responses() noexcept {
  for (std::uint32_t i = queue_.head; i != queue_.started; ++i) {
    SendEntry& work = queue_.entry(i);
    if (work.opcode != SendOpcode::RdmaRead) continue;
    while (work.packets_received < work.packets &&
           responses_.take(psn_add(work.first_psn, work.packets_received))) {
      ++work.packets_received;
      const std::uint32_t passed = psn_add(work.first_psn, work.packets_received);
      if (psn_distance(answered_, passed) > 0) answered_ = passed;
      const bool request_ends =
          work.packets_received % kReadRequestPackets == 0 || work.packets_received == work.packets;
      if (request_ends && reads_pending_ > 0) --reads_pending_;
    }
    SLUICE_INVARIANT_DEBUG(work.packets_received <= work.packets, psn_window);
    if (work.packets_received < work.packets) return;
  }
}

// --- Retransmission

/// Reduces the window once for all losses among the packets in flight (RFC 6582, recovery point).
void Requester::cut_window(std::uint32_t psn) noexcept {
  if (psn_distance(cut_until_, psn) < 0) return;
  window_.on_loss();
  cut_until_ = psns_.end();
}

void Requester::on_sequence_error(std::uint32_t psn) noexcept {
  // The NAK may refer to packets that were sent before going back.
  if (repaired_ && device_.now_ns() - repaired_ns_ < path_.round_trip().smoothed_ns() / 2) return;
  cut_window(psn);
  const bool oldest = psn == psns_.unacknowledged();  // otherwise an RDMA Read before it lacks responses
  if (oldest && psn == psns_.next()) return;
  if (oldest && peer_keeps_) return repair(psn);
  go_back();
  after_nak_ = oldest;
}

/// Retransmits one packet.
void Requester::repair(std::uint32_t psn) noexcept {
  static_cast<void>(SLUICE_INVARIANT(psns_.contains(psn), psn_window));
  const std::uint32_t index = queue_.find(psn);
  if (index == queue_.started || queue_.entry(index).opcode == SendOpcode::RdmaRead ||
      !send_data_packet(index, static_cast<std::uint32_t>(psn_distance(queue_.entry(index).first_psn, psn)),
                        true)) {
    go_back();
    after_nak_ = true;
    return;
  }
  ++device_.stats().repairs;
  ++device_.stats().packets_sent_again;
  single_ = true;
  single_psn_ = psn;
  repaired_ = true;
  repaired_ns_ = device_.now_ns();
  timed_since_ns_ = 0;
  restart_timer();
}

/// Retransmits from the oldest unacknowledged packet on (go-back-N).
void Requester::go_back() noexcept {
  static_cast<void>(SLUICE_INVARIANT(queue_.ordered(), queue_pair_state));
  ++device_.stats().go_backs;
  repaired_ = true;
  repaired_ns_ = device_.now_ns();
  after_nak_ = single_ = false;
  answered_ = psns_.unacknowledged();
  timed_since_ns_ = 0;  // no round-trip sample from a retransmitted packet (RFC 6298, section 3)
  since_ack_request_ = 0;
  reposition();
}

/// Makes the oldest unacknowledged packet the next one to send.
void Requester::reposition() noexcept {
  reads_pending_ = 0;
  psns_.go_back();
  next_packet_ = 0;
  for (queue_.next = queue_.head; queue_.next != queue_.started; ++queue_.next) {
    const SendEntry& work = queue_.entry(queue_.next);
    const std::int32_t into = psn_distance(work.first_psn, psns_.unacknowledged());
    if (work.packets == 0 || into >= static_cast<std::int32_t>(work.packets)) continue;
    next_packet_ = static_cast<std::uint32_t>(larger_of(into, 0));
    static_cast<void>(SLUICE_INVARIANT(next_packet_ < work.packets, psn_window));
    static_cast<void>(
        SLUICE_INVARIANT(psn_add(work.first_psn, next_packet_) == psns_.unacknowledged(), psn_window));
    return;
  }
}

bool Requester::on_rnr_nak(std::uint8_t code) noexcept {
  static_cast<void>(SLUICE_INVARIANT(psns_.ordered(), psn_window));
  if (rnr_retry_ < 7 && rnr_rounds_ >= rnr_retry_) return fail(WcStatus::RnrRetryExceeded);
  ++rnr_rounds_;
  go_back();
  rnr_wait_ = true;
  last_progress_ns_ = device_.now_ns();
  retry_at_ns_ = device_.now_ns() + rnr_timer_ns(code);
  return true;
}

bool Requester::complete_sends() noexcept {
  while (queue_.head != queue_.tail) {
    SendEntry& work = queue_.entry(queue_.head);
    if (work.status != WcStatus::Success) return fail(work.status);
    if (queue_.head == queue_.started) return true;
    if (work.packets == 0 ? !work.done
                          : psn_distance(psn_add(work.first_psn, work.packets), psns_.unacknowledged()) < 0)
      return true;
    if (work.opcode == SendOpcode::RdmaRead && work.packets_received < work.packets) return true;
    if (!SLUICE_INVARIANT(queue_.head != queue_.next, psn_window)) return false;  // completed, but not sent
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
  return true;
}

/// Completes the oldest work request with `status`, because of which the queue pair has to enter Error.
bool Requester::fail(WcStatus status) noexcept {
  if (!queue_.empty()) complete(queue_.entry(queue_.head), status);
  return false;
}

void Requester::flush() noexcept {
  retry_at_ns_ = 0;
  while (!queue_.empty()) complete(queue_.entry(queue_.head), WcStatus::WrFlushError);
  queue_.next = queue_.started = queue_.head;
  static_cast<void>(SLUICE_INVARIANT(queue_.ordered(), ring_index));
}

void Requester::complete(SendEntry& work, WcStatus status) noexcept {
  SLUICE_INVARIANT_DEBUG(queue_.head != queue_.tail && &work == &queue_.entry(queue_.head), ring_index);
  ++queue_.head;
  device_.give_back(work.read_until);
  if (status == WcStatus::WrFlushError) ++device_.stats().flushed;
  if (status == WcStatus::Success && (work.flags & kSignaled) == 0) return;
  device_.complete({.wr_id = work.wr_id,
                    .byte_len = work.bytes,
                    .qp = number_,
                    .status = status,
                    .opcode = completion_opcode(work.opcode)});
}

// --- Timers

/// Restarts the timer after packets were sent or acknowledged. Without an acknowledge timeout the requester
/// retransmits only on a NAK (InfiniBand 9.7.6.1.3).
void Requester::restart_timer() noexcept {
  if (psns_.outstanding() && ack_timeout_ != 0) {
    if (retry_at_ns_ == 0) last_progress_ns_ = device_.now_ns();
    const std::uint64_t timeout = path_.round_trip().timeout_ns();
    retry_at_ns_ =
        device_.now_ns() + (probed_ ? timeout : smaller_of(timeout, path_.round_trip().probe_ns()));
  } else {
    retry_at_ns_ = 0;
  }
}

void Requester::on_rate_timer() noexcept {
  SLUICE_INVARIANT_DEBUG(path_.paced_until_ns() == 0, timer_state);
  if (!rnr_wait_) restart_timer();
}

bool Requester::on_retry_timer(std::uint64_t now_ns) noexcept {
  static_cast<void>(SLUICE_INVARIANT(retry_at_ns_ != 0 && now_ns >= retry_at_ns_, timer_state));
  static_cast<void>(SLUICE_INVARIANT(ordered(), psn_window));
  retry_at_ns_ = 0;
  if (rnr_wait_) {
    rnr_wait_ = false;
    return true;
  }
  if (!psns_.outstanding()) return true;
  const std::uint64_t timeout = path_.round_trip().timeout_ns();
  const std::uint64_t probe_after = path_.round_trip().probe_ns();
  if (!probed_ && probe_after < timeout) {
    probed_ = true;
    probe();
    retry_at_ns_ = now_ns + timeout - probe_after;
    return true;
  }
  ++device_.stats().timeouts;
  const std::uint64_t patience = ack_timeout_ns(ack_timeout_) * (std::uint64_t{retry_count_} + 1);
  // Both conditions are required, because time also passes while this process is not scheduled, and that must
  // not end the connection.
  const bool retried = retries_ >= retry_count_;
  if (retried && now_ns - last_progress_ns_ >= patience) return fail(WcStatus::RetryExceeded);
  if (++retries_ > kRetriesOfLoss) path_.try_next_hop(retries_);
  path_.round_trip().on_timeout();
  window_.on_timeout();
  cut_until_ = psns_.end();
  go_back();
  retry_at_ns_ = now_ns + path_.round_trip().timeout_ns();
  return true;
}

/// Requests an acknowledgement without going back. If the last packet or its acknowledgement was lost, the
/// peer sends no NAK (RFC 8985, section 7). A peer that misses more packets replies with a NAK.
void Requester::probe() noexcept {
  ++device_.stats().probes;
  timed_since_ns_ = 0;
  std::uint32_t index = queue_.find(psns_.unacknowledged());
  if (index == queue_.started) return;
  if (queue_.entry(index).opcode == SendOpcode::RdmaRead) {
    send_read_request(queue_.entry(index), queue_.entry(index).packets_received);
    return;
  }
  const std::uint32_t last = psn_add(psns_.next(), kPsnMask);
  index = queue_.find(last);
  if (index == queue_.started) return;  // went back and could not send since
  const SendEntry& work = queue_.entry(index);
  const auto number = static_cast<std::uint32_t>(psn_distance(work.first_psn, last));
  static_cast<void>(SLUICE_INVARIANT(number < work.packets, psn_window));
  if (work.opcode == SendOpcode::RdmaRead)
    send_read_request(work, number);
  else
    send_data_packet(index, number, true);
}

}  // namespace sluice::rdma::softroce
