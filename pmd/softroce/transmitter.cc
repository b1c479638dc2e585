// SPDX-License-Identifier: Apache-2.0
#include "pmd/softroce/transmitter.h"

#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_mbuf.h>
#include <rte_mempool.h>
#include <rte_ring.h>

#include <algorithm>
#include <atomic>
#include <cstring>

#include "dataplane/base/invariant.h"
#include "dataplane/base/setup_error.h"
#include "pmd/softroce/byte_order.h"
#include "pmd/softroce/capture.h"
#include "pmd/softroce/pools.h"
#include "pmd/softroce/port.h"

namespace sluice::rdma::softroce {

// Functions of buffer_stock.h and pieces_in_use.h that need DPDK's buffers.
inline rte_mbuf* BufferStock::take() noexcept {
  SLUICE_INVARIANT_DEBUG(pool_ != nullptr && count_ <= kStockBuffers, pool_balance);
  if (count_ == 0) {
    if (rte_pktmbuf_alloc_bulk(pool_, buffers_.data(), kStockBuffers) != 0) return rte_pktmbuf_alloc(pool_);
    count_ = kStockBuffers;
  }
  return buffers_[--count_];
}

struct PiecesInUse::Piece {
  rte_mbuf_ext_shared_info info;
  PiecesInUse* owner;
  std::uint64_t number;
};

inline void PiecesInUse::add(Piece& piece) noexcept {
  SLUICE_INVARIANT_DEBUG(!full(), ring_index);
  piece.owner = this;
  piece.number = end_++;
  piece.info.free_cb = &PiecesInUse::on_freed;
  piece.info.fcb_opaque = &piece;
  rte_mbuf_ext_refcnt_set(&piece.info, 1);
}

void PiecesInUse::on_freed(void*, void* piece) noexcept {
  const Piece& freed = *static_cast<const Piece*>(piece);
  freed.owner->free(freed.number);
}

namespace {

constexpr std::uint16_t kHeaderRoom =
    kMaxNetworkHeaderBytes + kMaxTransportHeaderBytes + kCopyBytes + 3 + kIcrcBytes + 16;

std::byte* data_of(rte_mbuf* buffer) noexcept {
  return rte_pktmbuf_mtod(buffer, std::byte*);
}

rte_mempool* make_pool(const std::string& name, unsigned count, std::uint16_t private_bytes,
                       std::uint16_t room, int numa_node) {
  rte_mempool* pool =
      rte_pktmbuf_pool_create(name.c_str(), count, kTransmitCache, private_bytes, room, numa_node);
  if (pool == nullptr)
    throw SetupError("Cannot allocate the packet buffers '" + name + "' (" + rte_strerror(rte_errno) +
                     "). Give DPDK more memory (dpdk_memory_mib in [device], --dpdk-memory of a tool).");
  return pool;
}

void keep_memory(void*, void*) noexcept {}

PiecesInUse::Piece& piece_of(rte_mbuf* buffer) noexcept {
  return *static_cast<PiecesInUse::Piece*>(rte_mbuf_to_priv(buffer));
}

}  // namespace

Transmitter::Transmitter(const std::string& name, EthernetPort& port, std::uint32_t lane,
                         std::uint32_t frame_bytes, int numa_node, Statistics& statistics)
    : port_(port),
      link_(port.link()),
      lane_(lane),
      queue_owner_(port.queue_owner(lane)),
      // Payload is not sent in place if another lane passes the packets to the ethdev, because this lane
      // cannot see when they were sent.
      memory_(queue_owner_ == nullptr ? port.packet_memory() : PacketMemory::Unknown),
      copies_all_(memory_ == PacketMemory::Unknown),
      in_use_(port.pieces_in_use(lane)),
      statistics_(statistics) {
  const PortShape& shape = port.shape();
  const std::uint32_t buffers = transmit_buffers(shape, lane);
  const auto frame_room = static_cast<std::uint16_t>(RTE_PKTMBUF_HEADROOM + frame_bytes);
  headers_ = make_pool(name + "-h", buffers, 0, RTE_PKTMBUF_HEADROOM + kHeaderRoom, numa_node);
  header_stock_.open(headers_);
  frames_ = make_pool(name + "-f", buffers, 0, frame_room, numa_node);
  if (memory_ == PacketMemory::Unknown) return;
  const std::uint32_t pieces = piece_buffers(shape, lane);
  pieces_ = make_pool(name + "-p", pieces, RTE_ALIGN(sizeof(PiecesInUse::Piece), 8), 0, numa_node);
  piece_stock_.open(pieces_);
  in_use_.open(pieces);
}

Transmitter::~Transmitter() {
  static_cast<void>(SLUICE_INVARIANT(staged_ <= kTransmitBurst, ring_index));
  for (std::uint32_t i = 0; i < staged_; ++i) rte_pktmbuf_free(packets_[i]);
  for (rte_mempool* pool : {headers_, frames_, pieces_}) port_.free_later(pool);
}

bool Transmitter::append_in_place(rte_mbuf* head, rte_mbuf*& last, std::span<const std::byte> piece,
                                  bool of_caller) noexcept {
  const bool counted = of_caller && memory_ == PacketMemory::UntilFreed;
  rte_mbuf* buffer = counted && in_use_.full() ? nullptr : piece_stock_.take();
  if (buffer == nullptr) return false;
  rte_mbuf_ext_shared_info& info = piece_of(buffer).info;
  if (counted) {
    in_use_.add(piece_of(buffer));
  } else {
    info.free_cb = keep_memory;
    info.fcb_opaque = nullptr;
    rte_mbuf_ext_refcnt_set(&info, 1);
  }
  auto* memory = const_cast<std::byte*>(piece.data());
  SLUICE_INVARIANT_DEBUG(piece.size() <= UINT16_MAX, buffer_bounds);
  rte_pktmbuf_attach_extbuf(buffer, memory, reinterpret_cast<rte_iova_t>(memory),
                            static_cast<std::uint16_t>(piece.size()), &info);
  buffer->data_len = static_cast<std::uint16_t>(piece.size());
  buffer->pkt_len = buffer->data_len;
  last->next = buffer;
  last = buffer;
  ++head->nb_segs;
  head->pkt_len += buffer->data_len;
  SLUICE_INVARIANT_DEBUG(head->nb_segs <= kSegmentsInPlace, buffer_bounds);
  return true;
}

namespace {

/// Writes the headers of a packet into an empty buffer and returns their length.
inline std::size_t write_headers(const HeaderTemplate& headers, const TransportHeaders& transport,
                                 std::size_t payload_bytes, std::byte* at) noexcept {
  const std::size_t after_headers = payload_bytes + transport.padding_bytes + kIcrcBytes;
  headers.write(transport.count + after_headers, at);
  std::memcpy(at + headers.bytes(), transport.bytes.data(), transport.bytes.size());
  return headers.bytes() + transport.count;
}

/// Writes padding and CRC after a payload up to which the CRC is `crc`, and returns their number of bytes.
inline std::size_t write_trailer(std::uint32_t crc, std::uint8_t padding_bytes, std::byte* trailer) noexcept {
  if (padding_bytes > 0) {
    std::memset(trailer, 0, padding_bytes);
    crc = icrc_continue(crc, {trailer, padding_bytes});
  }
  const auto check = icrc_bytes(crc);
  SLUICE_INVARIANT_DEBUG(padding_bytes < 4, buffer_bounds);
  std::memcpy(trailer + padding_bytes, check.data(), check.size());
  return padding_bytes + check.size();
}

/// Ends a short packet in one buffer, whose `written` bytes are headers and payload, with padding and CRC.
inline void finish_short(const HeaderTemplate& headers, std::uint8_t padding_bytes, std::size_t written,
                         rte_mbuf* head) noexcept {
  std::byte* const at = data_of(head);
  store_be32(at + written, 0);  // largest padding; the CRC overwrites the rest
  written += padding_bytes;
  const std::size_t link_bytes = headers.network_at();
  const std::size_t network_bytes = headers.bytes() - link_bytes;
  const std::uint32_t crc = icrc_start(at + link_bytes, network_bytes, written - headers.bytes());
  const auto check = icrc_bytes(crc);
  std::memcpy(at + written, check.data(), check.size());
  written += kIcrcBytes;
  SLUICE_INVARIANT_DEBUG(written <= std::size_t{head->buf_len} - head->data_off, buffer_bounds);
  head->data_len = static_cast<std::uint16_t>(written);
  head->pkt_len = head->data_len;
}

}  // namespace

rte_mbuf* Transmitter::build(const HeaderTemplate& headers, const TransportHeaders& transport, Pieces pieces,
                             std::size_t payload_bytes) noexcept {
  const bool is_short = payload_bytes <= kCopyBytes;
  const bool copy = is_short || copies_all_ || pieces.size() > kInPlacePieces;
  rte_mbuf* head = copy && !is_short ? frame_buffer() : header_stock_.take();
  if (head == nullptr) return nullptr;
  std::byte* const at = data_of(head);
  std::size_t written = write_headers(headers, transport, payload_bytes, at);
  if (is_short) {
    for (const auto& piece : pieces) {
      std::memcpy(at + written, piece.data(), piece.size());
      written += piece.size();
    }
    finish_short(headers, transport.padding_bytes, written, head);
    return head;
  }

  const std::size_t link_bytes = headers.network_at();
  head->data_len = static_cast<std::uint16_t>(written);
  head->pkt_len = head->data_len;
  std::uint32_t crc = icrc_start(at + link_bytes, headers.bytes() - link_bytes, transport.count);
  rte_mbuf* last = head;
  bool whole = true;
  for (const auto& piece : pieces) {
    crc = copy ? icrc_copy(crc, piece, at + written) : icrc_continue(crc, piece);
    whole = whole && (copy || append_in_place(head, last, piece, true));
    if (copy) written += piece.size();
  }
  // Padding and CRC follow a copied payload. Otherwise they are stored in the unused room of the head buffer,
  // and one more piece refers to them.
  std::byte* const trailer = at + written;
  const std::size_t trailer_bytes = write_trailer(crc, transport.padding_bytes, trailer);
  SLUICE_INVARIANT_DEBUG(written + trailer_bytes <= std::size_t{head->buf_len} - head->data_off,
                         buffer_bounds);
  if (copy) {
    head->data_len = static_cast<std::uint16_t>(written + trailer_bytes);
    head->pkt_len = head->data_len;
    return head;
  }
  if (whole && append_in_place(head, last, {trailer, trailer_bytes}, false)) return head;
  rte_pktmbuf_free(head);
  return nullptr;
}

inline void Transmitter::stage(rte_mbuf* frame) noexcept {
  ++statistics_.packets_sent;
  statistics_.bytes_sent += frame->pkt_len;
  packets_[staged_++] = frame;
  ++ever_staged_;
}

bool Transmitter::send(const HeaderTemplate& headers, const TransportHeaders& transport,
                       std::span<const std::byte> payload, std::uint64_t& read_until) noexcept {
  if (payload.size() > kCopyBytes) return send(headers, transport, {&payload, 1}, payload.size(), read_until);
  if (staged_ == kTransmitBurst) return false;
  rte_mbuf* const frame = header_stock_.take();
  if (frame == nullptr) [[unlikely]] {
    ++statistics_.buffer_waits;
    return false;
  }
  std::byte* const at = data_of(frame);
  const std::size_t written = write_headers(headers, transport, payload.size(), at);
  if (!payload.empty()) std::memcpy(at + written, payload.data(), payload.size());
  finish_short(headers, transport.padding_bytes, written + payload.size(), frame);
  stage(frame);
  return true;
}

bool Transmitter::send(const HeaderTemplate& headers, const TransportHeaders& transport, Pieces pieces,
                       std::size_t payload_bytes, std::uint64_t& read_until) noexcept {
  SLUICE_INVARIANT_DEBUG(pieces.size() <= kMaxPayloadPieces, queue_pair_state);
  SLUICE_INVARIANT_DEBUG(staged_ <= kTransmitBurst && captured_ <= staged_, ring_index);
  if (staged_ == kTransmitBurst) return false;
  rte_mbuf* frame = build(headers, transport, pieces, payload_bytes);
  if (frame == nullptr) {
    ++statistics_.buffer_waits;
    return false;
  }
  stage(frame);
  if (frame->nb_segs > 1) {
    in_memory_ = true;
    read_until = memory_ == PacketMemory::UntilFreed ? in_use_.end() : ever_staged_;
  }
  return true;
}

void Transmitter::send_frame(rte_mbuf* frame) noexcept {
  if (staged_ == kTransmitBurst) flush();
  if (staged_ == kTransmitBurst) {
    rte_pktmbuf_free(frame);
    return;
  }
  packets_[staged_++] = frame;
  ++ever_staged_;
}

rte_mbuf* Transmitter::frame_buffer() noexcept {
  return rte_pktmbuf_alloc(frames_);
}

/// Drops the staged packets as if they were lost on the wire.
void Transmitter::drop_staged() noexcept {
  rte_pktmbuf_free_bulk(packets_.data(), staged_);
  statistics_.packets_unsent += staged_;
  staged_ = captured_ = 0;
  in_memory_ = false;
}

bool Transmitter::flush() noexcept {
  if (staged_ == 0) return false;
  SLUICE_INVARIANT_DEBUG(staged_ <= kTransmitBurst && captured_ <= staged_, ring_index);
  if (link_.use(lane_) != EthdevUse::Open) [[unlikely]] {
    drop_staged();
    return false;
  }
  if (Capture* capture = port_.capture())
    capture->add(lane_, {packets_.data() + captured_, staged_ - captured_}, Way::Out);
  std::uint32_t sent;
  if (queue_owner_ != nullptr)
    sent =
        rte_ring_sp_enqueue_burst(queue_owner_, reinterpret_cast<void**>(packets_.data()), staged_, nullptr);
  else
    sent = port_.transmit(lane_, {packets_.data(), staged_});
  SLUICE_INVARIANT_DEBUG(sent <= staged_, ring_index);
  if (sent < staged_) {
    ++statistics_.transmit_waits;
    std::copy(packets_.begin() + sent, packets_.begin() + staged_, packets_.begin());
  }
  staged_ -= sent;
  captured_ = staged_;  // packets still staged were captured already
  in_memory_ &= staged_ > 0;
  return sent > 0;
}

void Transmitter::let_go_of_memory() noexcept {
  if (!in_memory_) return;
  flush();
  std::uint32_t kept = 0;
  for (std::uint32_t i = 0; i < staged_; ++i) {
    rte_mbuf* const packet = packets_[i]->nb_segs > 1 ? copy_of(packets_[i]) : packets_[i];
    if (packet != nullptr) packets_[kept++] = packet;
  }
  static_cast<void>(SLUICE_INVARIANT(kept <= staged_, ring_index));
  staged_ = captured_ = kept;
  in_memory_ = false;
}

/// Replaces a packet by a copy in one buffer. Returns null if there is no buffer.
rte_mbuf* Transmitter::copy_of(rte_mbuf* packet) noexcept {
  rte_mbuf* const whole = frame_buffer();
  ++(whole != nullptr ? statistics_.left_overs_copied : statistics_.left_overs_lost);
  if (whole != nullptr) {
    std::byte* at = data_of(whole);
    static_cast<void>(SLUICE_INVARIANT(packet->pkt_len <= rte_pktmbuf_tailroom(whole), buffer_bounds));
    for (const rte_mbuf* segment = packet; segment != nullptr; segment = segment->next) {
      std::memcpy(at, rte_pktmbuf_mtod(segment, const std::byte*), segment->data_len);
      at += segment->data_len;
    }
    whole->data_len = static_cast<std::uint16_t>(packet->pkt_len);
    whole->pkt_len = packet->pkt_len;
  }
  rte_pktmbuf_free(packet);
  return whole;
}

bool Transmitter::take_turns() noexcept {
  if (!port_.shares_queue(lane_)) return false;
  return staged_ > 0 ? flush() : port_.transmit_for_others(lane_);
}

namespace {

std::atomic<bool> leaving{false};

}  // namespace

void free_pool(rte_mempool* pool) noexcept {
  if (!leaving) rte_mempool_free(pool);
}

void leave_pools(bool leave) noexcept {
  leaving = leave;
}

bool leaves_pools() noexcept {
  return leaving;
}

}  // namespace sluice::rdma::softroce
