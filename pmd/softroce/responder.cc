// SPDX-License-Identifier: Apache-2.0
//
// Responder half of a queue pair: InfiniBand 9.7.4 (validation and execution of requests), 9.7.5 (responses)
// and 9.9.3 (errors).
#include <cstring>

#include "dataplane/base/invariant.h"
#include "dataplane/base/small_algorithms.h"
#include "pmd/softroce/device.h"
#include "pmd/softroce/responder.h"

namespace sluice::rdma::softroce {

Responder::Responder(SoftDevice& device, PeerPath& path, const QueuePair& owner, std::uint32_t recv_depth)
    : device_(device), path_(path), owner_(owner), number_(owner.number()), recv_queue_(recv_depth) {}

Responder::~Responder() {
  device_.early_packets().release(early_);
  static_cast<void>(SLUICE_INVARIANT(early_.count == 0, pool_balance));
}

void Responder::open(std::uint32_t receive_psn, std::uint8_t responder_resources) noexcept {
  static_cast<void>(SLUICE_INVARIANT(idle() && incoming_ == Incoming::None, queue_pair_state));
  expected_psn_ = receive_psn & kPsnMask;
  responder_resources_ = responder_resources;
}

bool Responder::expects(const Packet& packet) const noexcept {
  const std::uint32_t packets =
      packet.bth.opcode == Opcode::ReadRequest ? path_.packets_of(packet.reth.length) : 1;
  return packet.bth.psn == expected_psn_ || psn_add(packet.bth.psn, packets) == expected_psn_;
}

bool Responder::is_repeated(const Packet& packet) const noexcept {
  const std::int32_t ago = psn_distance(packet.bth.psn, expected_psn_);
  return ago > 0 && ago <= kRepeatedPackets;
}

/// Reports whether the opcode may come next. First, Middle and Last follow each other, and all but the last
/// packet of a message are full (9.7.4.1.2 to 9.7.4.1.5). Reserved and unsupported opcodes, including
/// atomics, are invalid requests (9.9.3).
inline bool Responder::in_sequence(const OpcodeTraits& kind, Opcode opcode) const noexcept {
  if (!kind.send && !kind.write) return opcode == Opcode::ReadRequest && incoming_ == Incoming::None;
  if (kind.first) return incoming_ == Incoming::None;
  return incoming_ == (kind.send ? Incoming::Send : Incoming::Write);
}

bool Responder::length_fits(const Packet& packet) const noexcept {
  const std::size_t bytes = packet.payload.size();
  if (!packet.kind.last) return bytes == path_.mtu() && packet.bth.pad_bytes == 0;
  if (bytes > path_.mtu() || packet.bth.pad_bytes != pad_bytes(bytes)) return false;
  return packet.kind.first || bytes > 0;
}

/// Returns whether a Receive is posted. Otherwise schedules an RNR NAK.
bool Responder::receive_ready() noexcept {
  if (!recv_queue_.empty()) return true;
  // The peer retransmits from this request on (9.7.5.2.8).
  gap_.await_receive(expected_psn_);
  answer(Answer::Nak);
  return false;
}

inline void Responder::end_message(const Packet& packet, std::uint32_t bytes) noexcept {
  incoming_ = Incoming::None;
  msn_ = psn_add(msn_, 1);
  if (packet.kind.write && !packet.kind.has_immediate) return;
  SLUICE_INVARIANT_DEBUG(!recv_queue_.empty(), queue_pair_state);
  Statistics& stats = device_.stats();
  ++stats.receives;
  stats.solicited += packet.bth.solicited;
  device_.complete({.wr_id = recv_queue_.pop_front().wr_id,
                    .byte_len = bytes,
                    .qp = number_,
                    .rkey = static_cast<Rkey>(packet.kind.has_ieth ? packet.invalidate_rkey : 0),
                    .opcode = WcOpcode::Receive,
                    .remote_invalidate = packet.kind.has_ieth,
                    .has_immediate = packet.kind.has_immediate,
                    .immediate = packet.kind.has_immediate ? packet.immediate : 0});
}

inline bool Responder::accepted(const Packet& packet, std::uint32_t packets) noexcept {
  if (!SLUICE_INVARIANT(packet.bth.psn == expected_psn_, psn_window)) return false;
  expected_psn_ = psn_add(expected_psn_, packets);
  if (packet.bth.ack_request && packet.bth.opcode != Opcode::ReadRequest) answer(Answer::Ack);
  return true;
}

[[gnu::always_inline]] inline bool Responder::on_send(const Packet& packet) noexcept {
  if (!length_fits(packet)) return refuse(NakCode::InvalidRequest);
  if (packet.kind.first) {
    if (!receive_ready()) return true;
    incoming_bytes_ = 0;
  }
  SLUICE_INVARIANT_DEBUG(!recv_queue_.empty(), queue_pair_state);
  const RecvWr& receive = recv_queue_.front();
  SLUICE_INVARIANT_DEBUG(incoming_bytes_ <= receive.sge.length, buffer_bounds);
  const auto bytes = static_cast<std::uint32_t>(packet.payload.size());
  auto fault = WcStatus::Success;
  if (bytes > receive.sge.length - incoming_bytes_)
    fault = WcStatus::LocalLengthError;
  else if (!device_.memory().local_access(receive.sge))
    fault = WcStatus::LocalProtectionError;
  if (fault != WcStatus::Success) {
    device_.complete({.wr_id = receive.wr_id, .qp = number_, .status = fault, .opcode = WcOpcode::Receive});
    recv_queue_.pop_front();
    return refuse(fault == WcStatus::LocalLengthError ? NakCode::InvalidRequest : NakCode::RemoteOperational);
  }
  if (packet.kind.has_ieth &&
      !device_.memory().invalidate(static_cast<Rkey>(packet.invalidate_rkey), owner_)) {
    ++device_.stats().access_errors;
    return refuse(NakCode::RemoteAccess);
  }
  if (packet.kind.has_ieth) device_.give_back(read_until_);  // readers of the window
  std::memcpy(receive.sge.address + incoming_bytes_, packet.payload.data(), bytes);
  incoming_bytes_ += bytes;
  incoming_ = Incoming::Send;
  if (packet.kind.last) end_message(packet, incoming_bytes_);
  return accepted(packet, 1);
}

bool Responder::on_write(const Packet& packet) noexcept {
  if (!length_fits(packet)) return refuse(NakCode::InvalidRequest);
  const auto bytes = static_cast<std::uint32_t>(packet.payload.size());
  if (packet.kind.first) {
    write_address_ = packet.reth.address;
    write_rkey_ = static_cast<Rkey>(packet.reth.rkey);
    write_bytes_ = incoming_bytes_ = packet.reth.length;
    if (write_bytes_ > kMaxMessageBytes) return refuse(NakCode::InvalidRequest);
    // The whole range is checked before any byte is placed. A Write of length zero is not checked
    // (9.7.4.1.6).
    if (write_bytes_ > 0 &&
        device_.memory().remote(write_rkey_, write_address_, write_bytes_, kRemoteWrite, owner_) == nullptr) {
      ++device_.stats().access_errors;
      return refuse(NakCode::RemoteAccess);
    }
  }
  SLUICE_INVARIANT_DEBUG(incoming_bytes_ <= write_bytes_, buffer_bounds);
  if (packet.kind.last ? bytes != incoming_bytes_ : bytes >= incoming_bytes_)
    return refuse(NakCode::InvalidRequest);
  if (packet.kind.has_immediate && !receive_ready()) return true;
  if (bytes > 0) {
    // The access is checked again for each packet, because the window may have been invalidated since.
    std::byte* to = device_.memory().remote(write_rkey_, write_address_, bytes, kRemoteWrite, owner_);
    if (to == nullptr) {
      ++device_.stats().access_errors;
      return refuse(NakCode::RemoteAccess);
    }
    std::memcpy(to, packet.payload.data(), bytes);
  }
  write_address_ += bytes;
  incoming_bytes_ -= bytes;
  incoming_ = Incoming::Write;
  if (packet.kind.last) end_message(packet, write_bytes_);
  return accepted(packet, 1);
}

/// Returns the number of RDMA Reads that are answered for the first time. Repeated Reads do not count as
/// outstanding.
std::uint32_t Responder::reads_unanswered() noexcept {
  std::uint32_t count = 0;
  for (std::size_t i = 0; i < reads_.size(); ++i) count += !reads_[i].again;
  return count;
}

bool Responder::on_read(const Packet& packet) noexcept {
  const Reth& reth = packet.reth;
  if (reth.length > kMaxMessageBytes || !packet.payload.empty() ||
      reads_unanswered() >= smaller_of<std::uint32_t>(responder_resources_, kMaxReadsServed))
    return refuse(NakCode::InvalidRequest);
  if (reads_.full()) return true;  // full of repeated Reads: handled as if the request was lost
  if (reth.length > 0 && device_.memory().remote(static_cast<Rkey>(reth.rkey), reth.address, reth.length,
                                                 kRemoteRead, owner_) == nullptr) {
    ++device_.stats().access_errors;
    return refuse(NakCode::RemoteAccess);
  }
  msn_ = psn_add(msn_, 1);
  const std::uint32_t packets = path_.packets_of(reth.length);
  SLUICE_INVARIANT_DEBUG(packets > 0 && !reads_.full(), ring_index);
  reads_.push_back({.first_psn = packet.bth.psn,
                    .packets = packets,
                    .msn = msn_,
                    .rkey = static_cast<Rkey>(reth.rkey),
                    .bytes = reth.length,
                    .address = reth.address});
  ++device_.stats().reads_served;
  return accepted(packet, packets);
}

bool Responder::execute(const Packet& packet) noexcept {
  SLUICE_INVARIANT_DEBUG(packet.bth.psn == expected_psn_, psn_window);
  if (!in_sequence(packet.kind, packet.bth.opcode)) return refuse(NakCode::InvalidRequest);
  if (packet.kind.send) return on_send(packet);
  return packet.kind.write ? on_write(packet) : on_read(packet);
}

/// Handles a fatal error. Sends the NAK now and again when the request is retransmitted, so that the peer
/// receives the reason even if the NAK is lost. Returns false, because the queue pair has to enter Error.
bool Responder::refuse(NakCode code) noexcept {
  if (code == NakCode::InvalidRequest) ++device_.stats().invalid_requests;
  refused_ = code;
  send_acknowledge(Syndrome::Nak, static_cast<std::uint8_t>(code), expected_psn_);
  return false;
}

void Responder::on_request_in_error(const Packet& packet) noexcept {
  if (refused_ && packet.bth.psn == expected_psn_)
    send_acknowledge(Syndrome::Nak, static_cast<std::uint8_t>(*refused_), expected_psn_);
}

bool Responder::transmit(std::uint32_t& budget) noexcept {
  while (!reads_.empty() && budget > 0) {
    if (path_.wait_for_rate()) return true;
    ReadServed& read = reads_.front();
    if (read.again && !is_readable(read)) {  // invalidated since, so the requester has the data already
      reads_.pop_front();
      continue;
    }
    const Response response = send_read_response(read);
    if (response != Response::Sent) return response == Response::Later;
    --budget;
    if (++read.next == read.packets) reads_.pop_front();
  }
  if (budget == 0 || !has_answer() || !send_answer()) return true;
  answer_ = Answer::None;
  --budget;
  return true;
}

/// Sends the acknowledgement or NAK that answer_ names.
bool Responder::send_answer() noexcept {
  SLUICE_INVARIANT_DEBUG(answer_ != Answer::None, connection_state);
  if (answer_ == Answer::Ack)
    return send_acknowledge(Syndrome::Ack, kCreditsInvalid, psn_add(expected_psn_, kPsnMask));
  if (gap_.state() == RequestGap::State::AwaitingReceive)
    return send_acknowledge(Syndrome::RnrNak, kRnrTimerCode, expected_psn_);
  return send_acknowledge(Syndrome::Nak, static_cast<std::uint8_t>(NakCode::SequenceError), expected_psn_);
}

bool Responder::is_readable(const ReadServed& read) const noexcept {
  return read.bytes == 0 ||
         device_.memory().remote(read.rkey, read.address, read.bytes, kRemoteRead, owner_) != nullptr;
}

Responder::Response Responder::send_read_response(const ReadServed& read) noexcept {
  if (!SLUICE_INVARIANT(read.next < read.packets, psn_window)) return Response::Refused;
  const bool first = read.next == 0;
  const bool last = read.next + 1 == read.packets;
  const std::uint32_t offset = read.next * path_.mtu();
  SLUICE_INVARIANT_DEBUG(offset <= read.bytes, buffer_bounds);
  const std::uint32_t bytes = smaller_of(read.bytes - offset, path_.mtu());
  std::span<const std::byte> payload;
  if (bytes > 0) {
    const std::byte* from =
        device_.memory().remote(read.rkey, read.address + offset, bytes, kRemoteRead, owner_);
    if (from == nullptr) {
      ++device_.stats().access_errors;
      expected_psn_ = psn_add(read.first_psn, read.next);
      refuse(NakCode::RemoteAccess);
      return Response::Refused;
    }
    payload = {from, bytes};
  }
  Packet packet;
  packet.bth.opcode = first ? (last ? Opcode::ReadResponseOnly : Opcode::ReadResponseFirst)
                            : (last ? Opcode::ReadResponseLast : Opcode::ReadResponseMiddle);
  packet.bth.psn = psn_add(read.first_psn, read.next);
  packet.aeth.msn = read.msn;
  if (!path_.send(packet, payload, read_until_)) return Response::Later;
  path_.charge(bytes);
  return Response::Sent;
}

bool Responder::send_acknowledge(Syndrome syndrome, std::uint8_t value, std::uint32_t psn) noexcept {
  SLUICE_INVARIANT_DEBUG(psn <= kPsnMask && msn_ <= kPsnMask, psn_window);
  Packet packet;
  packet.bth.opcode = Opcode::Acknowledge;
  packet.bth.psn = psn;
  packet.aeth = {syndrome, value, msn_};
  if (!path_.send_without_payload(packet)) return false;
  Statistics& stats = device_.stats();
  ++(syndrome == Syndrome::Ack ? stats.acks_sent
                               : (syndrome == Syndrome::Nak ? stats.naks_sent : stats.rnr_naks_sent));
  return true;
}

void Responder::end_responses() noexcept {
  gap_.stop();
  device_.early_packets().release(early_);
  static_cast<void>(SLUICE_INVARIANT(early_.count == 0 && early_.first == EarlyPackets::kNone, pool_balance));
  device_.give_back(read_until_);
  reads_.clear();
  answer_ = Answer::None;
}

void Responder::flush_receives() noexcept {
  while (!recv_queue_.empty()) {
    ++device_.stats().flushed;
    device_.complete({.wr_id = recv_queue_.pop_front().wr_id,
                      .qp = number_,
                      .status = WcStatus::WrFlushError,
                      .opcode = WcOpcode::Receive});
  }
}

}  // namespace sluice::rdma::softroce
