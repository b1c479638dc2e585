// SPDX-License-Identifier: Apache-2.0
//
// A minimal requester of a reliable connection over RoCEv2, so that the responder limits a measurement: it
// sends, acknowledges the packets that arrive and discards them. RDMA Reads are answered with constant data,
// which the buffers have already, so that the data is not copied there. The link must not lose packets. This
// requester polls the ethdev of a softroce device, which is idle during that time.
#pragma once

#include <rte_ethdev.h>
#include <rte_mbuf.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <stdexcept>
#include <string>

#include "pmd/queue_pair.h"
#include "pmd/softroce/frame.h"
#include "pmd/softroce/wire.h"

namespace sluice::bench {

/// Runs connection management for one connection and keeps the attributes agreed on.
class AgreedQueuePair final : public rdma::QueuePair {
 public:
  explicit AgreedQueuePair(rdma::QueuePairNumber number) : number_(number) {}

  rdma::QueuePairNumber number() const noexcept override { return number_; }
  State state() const noexcept override { return State::ReadyToSend; }
  std::size_t post_send(std::span<const rdma::SendWr>) noexcept override { return 0; }
  std::size_t post_recv(std::span<const rdma::RecvWr>) noexcept override { return 0; }
  std::size_t send_room() const noexcept override { return 0; }
  std::optional<rdma::Rkey> bind_window(rdma::MemoryWindow, std::span<std::byte>, rdma::Lkey,
                                        rdma::AccessFlags) noexcept override {
    return std::nullopt;
  }
  void to_error() noexcept override {}
  bool connect(const rdma::RcAttributes& attributes) noexcept override {
    attributes_ = attributes;
    return true;
  }
  const rdma::RcAttributes& attributes() const { return attributes_; }

 private:
  rdma::QueuePairNumber number_;
  rdma::RcAttributes attributes_;
};

class RoceRequester {
 public:
  /// Creates a requester for IPv4 without VLAN. `own_link` is the ethdev's address.
  RoceRequester(std::uint16_t ethdev, const AgreedQueuePair& agreed, const LinkAddress& own_link)
      : ethdev_(ethdev),
        number_(static_cast<std::uint32_t>(agreed.number())),
        peer_(static_cast<std::uint32_t>(agreed.attributes().remote_qp)),
        send_psn_(agreed.attributes().send_psn),
        receive_psn_(agreed.attributes().receive_psn),
        mtu_(agreed.attributes().path_mtu),
        pool_(rte_pktmbuf_pool_create("requester", kBuffers, 0, 0, RTE_MBUF_DEFAULT_BUF_SIZE, 0)),
        responses_(rte_pktmbuf_pool_create("responses", kResponseBuffers, 0, 0,
                                           static_cast<std::uint16_t>(kPayloadAt + mtu_ + kTailBytes), 0)) {
    if (pool_ == nullptr || responses_ == nullptr) throw std::runtime_error("No buffers for packets.");
    rte_mempool_obj_iter(
        responses_,
        [](rte_mempool*, void* mtu, void* buffer, unsigned) {
          std::memset(payload_of(static_cast<rte_mbuf*>(buffer)), 1, *static_cast<const std::uint16_t*>(mtu));
        },
        &mtu_);
    route_.source_mac = own_link;
    route_.destination_mac = agreed.attributes().remote_link;
    route_.source = agreed.attributes().local;
    route_.destination = agreed.attributes().remote;
  }
  ~RoceRequester() {
    rte_mempool_free(pool_);
    rte_mempool_free(responses_);
  }
  RoceRequester(const RoceRequester&) = delete;
  RoceRequester& operator=(const RoceRequester&) = delete;

  /// Stages one Send of at most one packet, a multiple of four bytes. The next turn() transmits it.
  void send(std::span<const std::byte> message) {
    rdma::softroce::Packet packet;
    packet.bth.opcode = rdma::softroce::Opcode::SendOnly;
    packet.bth.ack_request = ++sends_ % kAckInterval == 0;
    packet.bth.psn = send_psn_;
    send_psn_ = rdma::softroce::psn_add(send_psn_, 1);
    stage(packet, message);
  }

  struct Arrived {
    std::uint64_t messages = 0;       ///< Sends
    std::uint64_t written_bytes = 0;  ///< by RDMA Write
    std::uint64_t read_bytes = 0;     ///< by RDMA Read
  };

  /// Transmits the staged packets, receives a burst and acknowledges it. Calls `on_message` for each Send.
  template <typename OnMessage>
  Arrived turn(OnMessage&& on_message) {
    flush();
    rte_mbuf* packets[kBurst];
    const std::uint16_t count = rte_eth_rx_burst(ethdev_, 0, packets, kBurst);
    Arrived arrived;
    bool acknowledge = false;
    for (rte_mbuf* packet : std::span(packets, count)) {
      const auto* frame = rte_pktmbuf_mtod(packet, const std::byte*);
      if (packet->data_len >= kTransportAt + rdma::softroce::kBthBytes && is_mine(frame))
        acknowledge |= take({frame, packet->data_len}, arrived, on_message);
    }
    rte_pktmbuf_free_bulk(packets, count);
    if (acknowledge) send_acknowledgement();
    return arrived;
  }

 private:
  static constexpr std::uint32_t kBuffers = 1023;
  static constexpr std::uint32_t kResponseBuffers = 63;  // few enough for their data to stay in the cache
  static constexpr std::size_t kPayloadAt = 256;         // in a buffer of responses_, after all headers
  static constexpr std::size_t kTailBytes = 8;           // padding and invariant CRC
  static constexpr std::uint16_t kBurst = 64;
  static constexpr std::uint32_t kAckInterval = 16;
  static constexpr std::size_t kTransportAt =
      rdma::softroce::kEthernetBytes + rdma::softroce::kIpv4Bytes + rdma::softroce::kUdpBytes;

  static std::uint32_t load24(const std::byte* at) {
    return std::to_integer<std::uint32_t>(at[0]) << 16 | std::to_integer<std::uint32_t>(at[1]) << 8 |
           std::to_integer<std::uint32_t>(at[2]);
  }
  bool is_mine(const std::byte* frame) const {
    return frame[12] == std::byte{0x08} && frame[13] == std::byte{0} &&
           load24(frame + kTransportAt + 5) == number_;
  }

  /// Processes a packet. Returns whether it requests an acknowledgement.
  template <typename OnMessage>
  bool take(std::span<const std::byte> frame, Arrived& arrived, OnMessage&& on_message) {
    using namespace rdma::softroce;
    const std::byte* bth = &frame[kTransportAt];
    const auto opcode = static_cast<Opcode>(bth[0]);
    const OpcodeTraits& kind = traits(opcode);
    if (opcode == Opcode::Acknowledge) {
      if ((std::to_integer<unsigned>(bth[kBthBytes]) >> 5) != static_cast<unsigned>(Syndrome::Ack))
        throw std::runtime_error("The server did not acknowledge a packet.");
      return false;
    }
    if (opcode == Opcode::ReadRequest) return take_read(bth, arrived), false;
    if (!kind.send && !kind.write)
      throw std::runtime_error("The server sent a packet that was not expected.");
    const std::int32_t ahead = psn_distance(receive_psn_, load24(bth + 9));
    if (ahead > 0)
      throw std::runtime_error("A packet of the server was lost: " + std::to_string(ahead) + " too far.");
    if (ahead < 0) return true;  // a duplicate, because an acknowledgement was late
    receive_psn_ = psn_add(receive_psn_, 1);
    if (kind.last) ++messages_;
    // Ethernet may pad, so the length is taken from the UDP header.
    const std::size_t udp_bytes =
        std::to_integer<std::size_t>(bth[-4]) << 8 | std::to_integer<std::size_t>(bth[-3]);
    const std::size_t pad = std::to_integer<std::size_t>(bth[1]) >> 4 & 3;
    const std::size_t payload = udp_bytes - kUdpBytes - kind.header_bytes - pad - kIcrcBytes;
    if (kind.write) {
      arrived.written_bytes += payload;
    } else {
      ++arrived.messages;
      on_message(frame.subspan(kTransportAt + kind.header_bytes, payload));
    }
    return std::to_integer<unsigned>(bth[8]) >> 7 != 0;
  }

  /// Answers an RDMA Read, also a repeated one, of any address.
  void take_read(const std::byte* bth, Arrived& arrived) {
    using namespace rdma::softroce;
    Packet request;
    request.kind = traits(Opcode::ReadRequest);
    decode_extended_headers(bth + kBthBytes, request);
    const std::uint32_t first = load24(bth + 9);
    const std::uint32_t packets = std::max(1u, (request.reth.length + mtu_ - 1) / mtu_);
    const std::int32_t ahead = psn_distance(receive_psn_, first);
    if (ahead > 0)
      throw std::runtime_error("A packet of the server was lost: " + std::to_string(ahead) + " too far.");
    if (ahead == 0) {
      receive_psn_ = psn_add(receive_psn_, packets);
      ++messages_;
      arrived.read_bytes += request.reth.length;
    }
    for (std::uint32_t i = 0; i < packets; ++i) {
      const bool last = i + 1 == packets;
      const std::uint32_t payload = last ? request.reth.length - i * mtu_ : mtu_;
      const Opcode opcode = packets == 1 ? Opcode::ReadResponseOnly
                            : i == 0     ? Opcode::ReadResponseFirst
                            : last       ? Opcode::ReadResponseLast
                                         : Opcode::ReadResponseMiddle;
      stage_response(opcode, psn_add(first, i), payload);
    }
  }

  static std::byte* payload_of(rte_mbuf* buffer) {
    return static_cast<std::byte*>(buffer->buf_addr) + kPayloadAt;
  }

  /// Stages a packet of a response in a buffer that has the data.
  void stage_response(rdma::softroce::Opcode opcode, std::uint32_t psn, std::uint32_t payload_bytes) {
    using namespace rdma::softroce;
    if (staged_ == outgoing_.size()) flush();
    rte_mbuf* buffer = rte_pktmbuf_alloc(responses_);
    if (buffer == nullptr) {
      flush();  // returns the buffers of the packets that it transmits
      buffer = rte_pktmbuf_alloc(responses_);
    }
    if (buffer == nullptr) throw std::runtime_error("No buffer for a packet.");
    Packet packet;
    packet.kind = traits(opcode);
    packet.bth.opcode = opcode;
    packet.bth.destination_qp = peer_;
    packet.bth.psn = psn;
    packet.bth.pad_bytes = pad_bytes(payload_bytes);
    packet.aeth.msn = messages_ & kPsnMask;
    const std::size_t payload = payload_bytes + packet.bth.pad_bytes;
    const std::size_t headers = kTransportAt + packet.kind.header_bytes;
    buffer->data_off = static_cast<std::uint16_t>(kPayloadAt - headers);
    auto* frame = reinterpret_cast<std::byte*>(
        rte_pktmbuf_append(buffer, static_cast<std::uint16_t>(headers + payload + kIcrcBytes)));
    const std::size_t transport = packet.kind.header_bytes + payload;
    write_network_headers(route_, transport + kIcrcBytes, frame);
    encode_headers(packet, frame + kTransportAt);
    const std::uint32_t crc =
        icrc_start(frame + kEthernetBytes, kTransportAt - kEthernetBytes, packet.kind.header_bytes);
    const auto check = icrc_bytes(icrc_continue(crc, {frame + headers, payload}));
    std::memcpy(frame + headers + payload, check.data(), check.size());
    outgoing_[staged_++] = buffer;
  }

  void send_acknowledgement() {
    rdma::softroce::Packet packet;
    packet.bth.opcode = rdma::softroce::Opcode::Acknowledge;
    packet.bth.psn = rdma::softroce::psn_add(receive_psn_, rdma::softroce::kPsnMask);
    packet.aeth.msn = messages_ & rdma::softroce::kPsnMask;
    stage(packet, {});
  }

  void stage(rdma::softroce::Packet& packet, std::span<const std::byte> payload) {
    using namespace rdma::softroce;
    if (staged_ == outgoing_.size()) flush();
    rte_mbuf* buffer = rte_pktmbuf_alloc(pool_);
    if (buffer == nullptr) throw std::runtime_error("No buffer for a packet.");
    packet.kind = traits(packet.bth.opcode);
    packet.bth.destination_qp = peer_;
    const std::size_t transport = packet.kind.header_bytes + payload.size() + kIcrcBytes;
    auto* frame = reinterpret_cast<std::byte*>(
        rte_pktmbuf_append(buffer, static_cast<std::uint16_t>(kTransportAt + transport)));
    write_network_headers(route_, transport, frame);
    std::byte* at = frame + kTransportAt;
    at += encode_headers(packet, at);
    if (!payload.empty()) std::memcpy(at, payload.data(), payload.size());
    at += payload.size();
    const auto check =
        icrc_bytes(icrc_start(frame + kEthernetBytes, kTransportAt - kEthernetBytes, transport - kIcrcBytes));
    std::memcpy(at, check.data(), check.size());
    outgoing_[staged_++] = buffer;
  }

  void flush() {
    for (std::uint16_t sent = 0; sent < staged_;)
      sent = static_cast<std::uint16_t>(
          sent + rte_eth_tx_burst(ethdev_, 0, &outgoing_[sent], static_cast<std::uint16_t>(staged_ - sent)));
    staged_ = 0;
  }

  const std::uint16_t ethdev_;
  const std::uint32_t number_;
  const std::uint32_t peer_;
  std::uint32_t send_psn_;
  std::uint32_t receive_psn_;
  std::uint32_t messages_ = 0;
  std::uint32_t sends_ = 0;
  std::uint16_t mtu_;  ///< bytes of payload in a packet
  rte_mempool* pool_;
  rte_mempool* responses_;
  rdma::softroce::Route route_;
  std::array<rte_mbuf*, 128> outgoing_{};
  std::uint16_t staged_ = 0;
};

}  // namespace sluice::bench
