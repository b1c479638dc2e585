// SPDX-License-Identifier: Apache-2.0
//
// Requester half of a queue pair: sending (InfiniBand 9.7.2, 9.7.3).

#include "pmd/softroce/requester.h"
#include "dataplane/base/invariant.h"
#include "dataplane/base/small_algorithms.h"
#include "pmd/softroce/device.h"

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

constexpr bool sends_data(SendOpcode opcode) noexcept {
  return opcode != SendOpcode::RdmaRead && opcode != SendOpcode::LocalInvalidate;
}

}  // namespace

Requester::Requester(SoftDevice& device, PeerPath& path, const QueuePair& owner,
                     const QueuePairLimits& limits)
    : device_(device),
      path_(path),
      owner_(owner),
      number_(owner.number()),
      queue_(limits.send_depth, smaller_of<std::uint32_t>(limits.max_send_sge, kMaxPayloadPieces)),
      responses_(device.max_inflight_packets() + kReadRequestPackets) {}

void Requester::open(const RcAttributes& attributes) noexcept {
  static_cast<void>(SLUICE_INVARIANT(queue_.empty() && reads_pending_ == 0, queue_pair_state));
  const std::uint32_t max_inflight = device_.max_inflight_packets();
  psns_.open(attributes.send_psn, max_inflight - 1 + kReadRequestPackets);
  window_.open(max_inflight);
  answered_ = cut_until_ = psns_.unacknowledged();
  initiator_depth_ = attributes.initiator_depth;
  ack_timeout_ = attributes.ack_timeout;
  retry_count_ = attributes.retry_count;
  rnr_retry_ = attributes.rnr_retry;
}

void SendQueue::add(const SendWr& wr, const MemoryTable& memory) noexcept {
  SLUICE_INVARIANT_DEBUG(tail - head <= mask_, ring_index);
  SendEntry& added = entry(tail);
  added = {.wr_id = wr.wr_id,
           .remote_address = wr.remote_address,
           .rkey = wr.rkey,
           .immediate = wr.immediate,
           .sge_count = static_cast<std::uint16_t>(smaller_of<std::size_t>(wr.sges.size(), max_sge_)),
           .opcode = wr.opcode,
           .flags = wr.flags};
  if (wr.sges.size() > max_sge_) added.status = WcStatus::LocalLengthError;
  Sge* sges = sges_of(tail);
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < added.sge_count; ++i) {
    const auto [address, length, lkey] = wr.sges[i];  // loads have the width of the stores
    sges[i] = {address, length, lkey};
    bytes += length;
    if (!memory.local_access({address, length, lkey})) added.status = WcStatus::LocalProtectionError;
  }
  if (bytes > kMaxSendMessageBytes) added.status = WcStatus::LocalLengthError;
  added.bytes = static_cast<std::uint32_t>(bytes);
  ++tail;
}

std::uint32_t SendQueue::find(std::uint32_t psn) const noexcept {
  SLUICE_INVARIANT_DEBUG(ordered() && psn <= kPsnMask, ring_index);
  for (std::uint32_t i = head; i != started; ++i) {
    const std::int32_t number = psn_distance(entry(i).first_psn, psn);
    if (number >= 0 && number < static_cast<std::int32_t>(entry(i).packets)) return i;
  }
  return started;
}

std::span<const std::span<const std::byte>> SendQueue::gather(std::uint32_t index, std::uint32_t offset,
                                                              std::uint32_t bytes) noexcept {
  const SendEntry& work = entry(index);
  const Sge* sges = sges_of(index);
  SLUICE_INVARIANT_DEBUG(offset <= work.bytes && bytes <= work.bytes - offset, buffer_bounds);
  SLUICE_INVARIANT_DEBUG(work.sge_count <= max_sge_, buffer_bounds);
  if (work.sge_count == 1) {
    pieces_[0] = piece(index, offset, bytes);
    return std::span(pieces_).first(bytes > 0 ? 1 : 0);
  }
  if (gathered_ != index || offset < gathered_sge_start_ || offset == 0) {
    gathered_ = index;
    gathered_sge_ = gathered_sge_start_ = 0;
  }
  std::size_t count = 0;
  while (bytes > 0 && gathered_sge_ < work.sge_count) {
    const Sge& sge = sges[gathered_sge_];
    const std::uint32_t within = offset - gathered_sge_start_;
    if (within >= sge.length) {
      gathered_sge_start_ += sge.length;
      ++gathered_sge_;
      continue;
    }
    const std::uint32_t piece = smaller_of(sge.length - within, bytes);
    pieces_[count++] = {sge.address + within, piece};
    offset += piece;
    bytes -= piece;
    SLUICE_INVARIANT_DEBUG(count <= pieces_.size(), buffer_bounds);
  }
  SLUICE_INVARIANT_DEBUG(bytes == 0, buffer_bounds);
  return std::span(pieces_).first(count);
}

void Requester::add(const SendWr& wr) noexcept {
  queue_.add(wr, device_.memory());
}

/// Sends packet `number` of an entry through send(packet). Requests an acknowledgement if `ask` is set, or
/// after kAckRequestInterval packets without a request.
template <typename Send>
[[gnu::always_inline]] inline bool Requester::send_packet(const SendEntry& work, std::uint32_t number,
                                                          bool ask, const Send& send) noexcept {
  SLUICE_INVARIANT_DEBUG(sends_data(work.opcode), queue_pair_state);
  const bool last = number + 1 == work.packets;
  Packet packet;
  packet.bth.opcode = kDataOpcodes[static_cast<std::size_t>(work.opcode)].at(number == 0, last);
  packet.bth.psn = psn_add(work.first_psn, number);
  packet.bth.solicited = last && (work.flags & kSolicited) != 0;
  packet.bth.ack_request = ask || since_ack_request_ + 1 >= kAckRequestInterval;
  packet.reth = {work.remote_address, static_cast<std::uint32_t>(work.rkey), work.bytes};
  packet.immediate = work.immediate;
  packet.invalidate_rkey = static_cast<std::uint32_t>(work.rkey);
  if (!send(packet)) return false;
  since_ack_request_ = packet.bth.ack_request ? 0 : since_ack_request_ + 1;
  return true;
}

/// Measures the round trip of the packet `psn`, which was just sent, unless that of another one is measured.
/// A packet without an acknowledge request is acknowledged together with a later packet, which gives no valid
/// sample.
inline void Requester::time_round_trip(std::uint32_t psn) noexcept {
  if (timed_since_ns_ != 0 || since_ack_request_ != 0) return;
  timed_psn_ = psn;
  timed_since_ns_ = device_.now_ns();
}

std::uint32_t Requester::send_at_once(std::span<const SendWr> wrs) noexcept {
  if (queue_.next != queue_.tail || psns_.retransmitting() || rnr_wait_ || path_.rate().limited() ||
      queue_.max_sge() == 0)
    return 0;
  SLUICE_INVARIANT_DEBUG(wrs.size() <= queue_.room() && next_packet_ == 0, ring_index);
  const std::uint32_t in_flight = psns_.in_flight();
  const std::uint32_t window = window_.packets();
  const std::uint32_t most_bytes = smaller_of(path_.mtu(), kCopyBytes);
  const bool reading = reads_pending_ > 0;
  const auto fits = [&](const SendWr& wr) noexcept {
    return wr.sges.size() == 1 && sends_data(wr.opcode) && ((wr.flags & kFence) == 0 || !reading) &&
           wr.sges.front().length <= most_bytes && device_.memory().local_access(wr.sges.front());
  };
  std::uint32_t sent = 0;
  bool fitting = !wrs.empty() && fits(wrs.front());
  for (; fitting && in_flight + sent < window; ++sent) {
    const SendWr& wr = wrs[sent];
    const Sge sge = wr.sges.front();
    const bool ends = sent + 1 == wrs.size() || wrs[sent + 1].opcode == SendOpcode::LocalInvalidate;
    fitting = !ends && fits(wrs[sent + 1]);
    // A next request with an error is never sent, so send_data_packet() decides whether this one has to ask.
    if (!ends && !fitting) break;
    SendEntry& work = queue_.prepare(sent, wr, sge, psn_add(psns_.next(), sent));
    const bool staged =
        send_packet(work, 0, ends || in_flight + sent + 1 >= window, [&](Packet& packet) noexcept {
          return path_.send(packet, std::span<const std::byte>{sge.address, sge.length}, work.read_until);
        });
    if (!staged) break;
    time_round_trip(work.first_psn);
  }
  if (sent == 0) return 0;
  path_.rate().note_sent();  // it is not limited
  queue_.count_sent(sent);
  static_cast<void>(SLUICE_INVARIANT(psns_.sent(sent), psn_window));
  if (retry_at_ns_ == 0) restart_timer();
  return sent;
}

void Requester::add_flushed(const SendWr& wr) noexcept {
  SLUICE_INVARIANT_DEBUG(queue_.empty(), queue_pair_state);
  add(wr);
  complete(queue_.entry(queue_.head), WcStatus::WrFlushError);
}

// --- Sending

bool Requester::may_send_more() const noexcept {
  if (queue_.next == queue_.tail || rnr_wait_) return false;
  const SendEntry& work = queue_.entry(queue_.next);
  if (work.status != WcStatus::Success) return false;
  if (work.opcode == SendOpcode::LocalInvalidate) return true;
  if (psns_.in_flight() >= window_.packets()) return false;
  if (queue_.next == queue_.started && (work.flags & kFence) != 0 && reads_pending_ > 0) return false;
  return work.opcode != SendOpcode::RdmaRead || reads_pending_ < initiator_depth_;
}

bool Requester::transmit(std::uint32_t budget, std::uint64_t responses_until) noexcept {
  std::uint32_t sent = 0;
  bool local_work = false;
  while (sent < budget && may_send_more()) {
    if (path_.wait_for_rate()) break;
    SendEntry& work = queue_.entry(queue_.next);
    if (queue_.next == queue_.started && !start(work, responses_until)) {
      local_work = true;
      break;
    }
    if (work.packets == 0) {
      ++queue_.next;
      local_work = true;
      continue;
    }
    if (!SLUICE_INVARIANT(psn_add(work.first_psn, next_packet_) == psns_.next(), psn_window)) return false;
    const bool again = psns_.retransmitting();
    const bool reading = work.opcode == SendOpcode::RdmaRead;
    const std::uint32_t packets =
        reading ? send_read_request(work, next_packet_) : send_data_packet(queue_.next, next_packet_, false);
    if (packets == 0) break;
    reads_pending_ += reading;
    SLUICE_INVARIANT_DEBUG(reads_pending_ <= initiator_depth_, credit_balance);
    const std::uint32_t end = psns_.end();
    if (!psns_.sent(packets)) return false;
    if (psns_.end() != end) time_round_trip(psn_add(psns_.end(), kPsnMask));
    next_packet_ += packets;
    SLUICE_INVARIANT_DEBUG(next_packet_ <= work.packets, psn_window);
    ++sent;
    if (again) ++device_.stats().packets_sent_again;
    if (next_packet_ == work.packets) {
      next_packet_ = 0;
      do ++queue_.next;
      while (queue_.next != queue_.started &&
             queue_.entry(queue_.next).packets == 0);  // executed before going back
    }
    if (retry_at_ns_ == 0 || path_.rate().limited()) restart_timer();
  }
  if (local_work || (queue_.next != queue_.tail && queue_.entry(queue_.next).status != WcStatus::Success))
    return complete_sends();
  return true;
}

/// Assigns PSNs to an entry, or executes it if it is local work. Returns false if the work failed.
bool Requester::start(SendEntry& work, std::uint64_t responses_until) noexcept {
  SLUICE_INVARIANT_DEBUG(queue_.started != queue_.tail && &work == &queue_.entry(queue_.started), ring_index);
  ++queue_.started;
  work.first_psn = psns_.end();
  if (work.opcode != SendOpcode::LocalInvalidate) {
    work.packets = path_.packets_of(work.bytes);
    return true;
  }
  work.packets = 0;
  work.read_until = responses_until;  // responses may still be read from the window
  work.done = device_.memory().invalidate(work.rkey, owner_);
  if (!work.done) work.status = WcStatus::BindError;
  return work.done;
}

/// Requests the responses from `number` to the end of their request (kReadRequestPackets). Returns the number
/// of responses, or zero if the caller has to try again later.
std::uint32_t Requester::send_read_request(const SendEntry& work, std::uint32_t number) noexcept {
  const std::uint32_t end =
      smaller_of(work.packets, (number / kReadRequestPackets + 1) * kReadRequestPackets);
  const std::uint32_t offset = number * path_.mtu();
  SLUICE_INVARIANT_DEBUG(number < work.packets && number < end, psn_window);
  SLUICE_INVARIANT_DEBUG(offset <= work.bytes, buffer_bounds);
  Packet packet;
  packet.bth.opcode = Opcode::ReadRequest;
  packet.bth.psn = psn_add(work.first_psn, number);
  packet.bth.ack_request = true;
  packet.reth = {work.remote_address + offset, static_cast<std::uint32_t>(work.rkey),
                 smaller_of(work.bytes - offset, (end - number) * path_.mtu())};
  if (!path_.send_without_payload(packet)) return 0;
  since_ack_request_ = 0;
  return end - number;
}

/// Reports whether no request follows the entry on the wire for now, so that no other packet would request
/// its acknowledgement.
bool Requester::last_on_the_wire(std::uint32_t index) const noexcept {
  for (std::uint32_t i = index + 1; i != queue_.tail; ++i) {
    const SendEntry& work = queue_.entry(i);
    if (work.status != WcStatus::Success) return true;
    if (work.opcode != SendOpcode::LocalInvalidate) return false;
  }
  return true;
}

/// Sends packet `number` of a Send or Write. `ask` requests an acknowledgement even if none is due. Returns
/// false if the caller has to try again later.
bool Requester::send_data_packet(std::uint32_t index, std::uint32_t number, bool ask) noexcept {
  SendEntry& work = queue_.entry(index);
  const std::uint32_t offset = number * path_.mtu();
  SLUICE_INVARIANT_DEBUG(index - queue_.head < queue_.started - queue_.head && number < work.packets,
                         psn_window);
  SLUICE_INVARIANT_DEBUG(offset <= work.bytes, buffer_bounds);
  const std::uint32_t bytes = smaller_of(work.bytes - offset, path_.mtu());
  const bool due =
      psns_.in_flight() + 1 >= window_.packets() || (number + 1 == work.packets && last_on_the_wire(index));
  const bool staged = send_packet(work, number, ask || due, [&](Packet& packet) noexcept {
    return work.sge_count == 1
               ? path_.send(packet, queue_.piece(index, offset, bytes), work.read_until)
               : path_.send(packet, queue_.gather(index, offset, bytes), bytes, work.read_until);
  });
  if (staged) path_.charge(bytes);
  return staged;
}

}  // namespace sluice::rdma::softroce
