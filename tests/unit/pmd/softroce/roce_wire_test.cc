// SPDX-License-Identifier: Apache-2.0
//
// Packets that Linux kernels sent: each is decoded, and encoded again to identical bytes. The decoders must
// also survive corrupt packets.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <optional>
#include <random>
#include <utility>

#include "controlplane/cm/mad.h"
#include "dataplane/rpcrdma/wire/v1.h"
#include "pmd/softroce/byte_order.h"
#include "pmd/softroce/frame.h"
#include "pmd/softroce/wire.h"
#include "tests/golden/pcap.h"
#include "tests/unit/pmd/softroce/expected_headers_check.h"

namespace sluice::rdma::softroce {
namespace {

using Bytes = std::vector<std::byte>;

MacAddress mac_at(const Bytes& frame, std::size_t at) {
  MacAddress mac;
  std::memcpy(mac.data(), frame.data() + at, mac.size());
  return mac;
}

/// Clears the identification and flags, which are the sender's choice, and the checksum, which depends on
/// them.
void blank_ipv4_choices(Bytes& frame, std::size_t network) {
  for (const std::size_t at : {4, 5, 6, 7, 10, 11}) frame[network + at] = std::byte{0};
}

/// Encodes the packet from its decoded form.
Bytes make_again(const Bytes& original, const Frame& frame, const Packet& packet) {
  const Route route{
      .source_mac = mac_at(original, 6),
      .destination_mac = mac_at(original, 0),
      .vlan = frame.vlan,
      .source = frame.source,
      .destination = frame.destination,
      .udp_source_port = frame.udp_source_port,
      .traffic_class = frame.traffic_class,
      .hop_limit = std::to_integer<std::uint8_t>(original[frame.network_offset + std::size_t{8}])};
  Bytes made(network_header_bytes(route) + kMaxTransportHeaderBytes);
  const std::size_t transport =
      packet.kind.header_bytes + packet.payload.size() + packet.bth.pad_bytes + kIcrcBytes;
  write_network_headers(route, transport, made.data());
  const std::size_t network = network_header_bytes(route);
  made.resize(network + encode_headers(packet, made.data() + network));
  made.insert(made.end(), packet.payload.begin(), packet.payload.end());
  made.resize(made.size() + packet.bth.pad_bytes);
  // The invariant CRC covers the identification of the original.
  std::memcpy(made.data() + frame.network_offset + 4, original.data() + frame.network_offset + 4, 4);
  std::uint32_t crc =
      icrc_start(made.data() + frame.network_offset, network - frame.network_offset, kBthBytes);
  crc = icrc_continue(crc, std::span(made).subspan(network + kBthBytes));
  const auto check = icrc_bytes(crc);
  made.insert(made.end(), check.begin(), check.end());
  return made;
}

void expect_same_again(const Bytes& original) {
  const Frame frame = parse(original);
  if (frame.kind != FrameKind::Roce) return;
  ASSERT_TRUE(icrc_correct(frame, original));
  const auto packet = decode(frame.transport);
  ASSERT_TRUE(packet);
  Bytes made = make_again(original, frame, *packet);
  Bytes expected = original;
  expected.resize(made.size());  // without the padding of Ethernet
  blank_ipv4_choices(made, frame.network_offset);
  blank_ipv4_choices(expected, frame.network_offset);
  ASSERT_EQ(made, expected);
  if (packet->bth.opcode == Opcode::DatagramSendOnly) {
    const auto mad = cm::decode(packet->payload);
    ASSERT_EQ(mad.status, cm::Decode::Ok);
    const auto again = cm::encode(mad.message);
    ASSERT_TRUE(std::equal(again.begin(), again.end(), packet->payload.begin(), packet->payload.end()));
  }
}

std::vector<Bytes> golden() {
  return golden::read_pcap(SLUICE_GOLDEN_PCAP);
}

TEST(RoceWire, golden_packets_decode_and_encode_to_the_same_bytes) {
  std::map<Opcode, int> seen;
  for (const Bytes& frame : golden()) {
    ASSERT_NO_FATAL_FAILURE(expect_same_again(frame));
    ++seen[decode(parse(frame).transport)->bth.opcode];
  }
  for (const Opcode opcode : {Opcode::SendFirst, Opcode::SendLast, Opcode::SendOnly, Opcode::WriteFirst,
                              Opcode::WriteMiddle, Opcode::WriteLast, Opcode::WriteOnly, Opcode::ReadRequest,
                              Opcode::ReadResponseFirst, Opcode::ReadResponseMiddle, Opcode::ReadResponseLast,
                              Opcode::ReadResponseOnly, Opcode::Acknowledge, Opcode::DatagramSendOnly})
    EXPECT_GT(seen[opcode], 0) << static_cast<int>(opcode);
}

/// Reassembles Sends of several packets, by destination.
class Reassembly {
 public:
  /// Returns the whole message with its last packet.
  std::optional<Bytes> add(const Frame& frame, const Packet& packet) {
    if (!packet.kind.send || packet.bth.opcode == Opcode::DatagramSendOnly) return std::nullopt;
    Bytes& message = partial_[{frame.destination.bytes, packet.bth.destination_qp}];
    if (packet.kind.first) message.clear();
    message.insert(message.end(), packet.payload.begin(), packet.payload.end());
    if (!packet.kind.last) return std::nullopt;
    return std::exchange(message, {});
  }

 private:
  std::map<std::pair<std::array<std::uint8_t, 16>, std::uint32_t>, Bytes> partial_;
};

/// Encodes a decoded RPC-over-RDMA version 1 header and returns whether the bytes are equal. Returns false
/// for other messages (rping's).
bool transport_header_is_same_again(const Bytes& message) {
  namespace v1 = rpcrdma::v1;
  const auto decoded = v1::decode(message);
  const auto& header = decoded.header;
  const bool chunky = header.procedure == v1::Procedure::Msg || header.procedure == v1::Procedure::NoMsg;
  if (decoded.status != v1::Decode::Ok || !chunky) return false;
  std::vector<rpcrdma::ReadSegment> reads;
  for (std::uint32_t i = 0; i < header.chunks.reads.size(); ++i) reads.push_back(header.chunks.reads[i]);
  std::vector<std::vector<rpcrdma::Segment>> writes;
  const auto segments_of = [](const rpcrdma::WriteChunk& chunk) {
    std::vector<rpcrdma::Segment> out;
    for (std::uint32_t i = 0; i < chunk.size(); ++i) out.push_back(chunk[i]);
    return out;
  };
  for (const rpcrdma::WriteChunk chunk : header.chunks.writes) writes.push_back(segments_of(chunk));
  const std::vector<std::span<const rpcrdma::Segment>> spans(writes.begin(), writes.end());
  rpcrdma::CallChunks chunks{reads, spans, std::nullopt};
  std::vector<rpcrdma::Segment> reply;
  if (header.chunks.reply) chunks.reply = reply = segments_of(*header.chunks.reply);
  Bytes again(v1::header_bytes(chunks));
  xdr::Writer writer(again);
  v1::encode_call(writer, header.fixed.xid, header.fixed.credits, header.procedure, chunks);
  EXPECT_TRUE(std::equal(again.begin(), again.end(), message.begin()));
  return true;
}

/// Checks each packet of the captures in the folder SLUICE_CAPTURES. Skipped if there are none.
TEST(RoceWire, captures_decode_and_encode_to_the_same_bytes) {
  const char* folder = std::getenv("SLUICE_CAPTURES");
  const std::filesystem::path where = folder != nullptr ? folder : SLUICE_CAPTURES;
  if (!std::filesystem::is_directory(where)) GTEST_SKIP() << "no captures in " << where;
  std::size_t count = 0;
  std::size_t rpcs = 0;
  for (const auto& entry : std::filesystem::directory_iterator(where)) {
    if (entry.path().extension() != ".pcap") continue;
    Reassembly sends;
    for (const Bytes& bytes : golden::read_pcap(entry.path())) {
      ASSERT_NO_FATAL_FAILURE(expect_same_again(bytes)) << entry.path() << " packet " << count;
      ++count;
      const Frame frame = parse(bytes);
      if (frame.kind != FrameKind::Roce) continue;
      if (const auto message = sends.add(frame, *decode(frame.transport)))
        rpcs += transport_header_is_same_again(*message);
    }
  }
  EXPECT_GT(count, 1000u);
  EXPECT_GT(rpcs, 500u);
}

/// Each packet of the captures and the packets after it, which mostly belong to the same connection.
TEST(RoceWire, captured_packets_match_expected_headers_only_where_both_paths_agree) {
  constexpr std::size_t kAfter = 8;
  std::vector<std::vector<Bytes>> captures{golden()};
  if (std::filesystem::is_directory(SLUICE_CAPTURES))
    for (const auto& entry : std::filesystem::directory_iterator(SLUICE_CAPTURES))
      if (entry.path().extension() == ".pcap") captures.push_back(golden::read_pcap(entry.path()));
  std::map<Expectation, int> seen;
  for (const std::vector<Bytes>& frames : captures)
    for (std::size_t i = 0; i < frames.size(); ++i)
      for (std::size_t j = i; j < std::min(frames.size(), i + kAfter); ++j) {
        const Expectation found = compare(frames[i], frames[j]);
        ASSERT_NE(found, Expectation::Disagrees) << i << " and " << j;
        ++seen[found];
      }
  EXPECT_GT(seen[Expectation::Agrees], 100);
  EXPECT_GT(seen[Expectation::NotMatched], 100);
}

TEST(RoceWire, one_wrong_bit_is_noticed_or_means_nothing) {
  for (Bytes frame : golden()) {
    const Frame whole = parse(frame);
    for (std::size_t bit = kEthernetBytes * 8; bit < std::min<std::size_t>(frame.size(), 200) * 8; ++bit) {
      frame[bit / 8] ^= std::byte(1u << bit % 8);
      const Frame parsed = parse(frame);
      // The CRC does not cover the fields that routers may change (traffic class, time to live, the checksums
      // of IP and UDP) or the reserved bits with the congestion marks (A17.3.3).
      if (parsed.kind == FrameKind::Roce && icrc_correct(parsed, frame)) {
        const std::size_t byte = bit / 8;
        const bool variant = byte == 15 || byte == 22 || byte == 24 || byte == 25 || byte == 40 ||
                             byte == 41 || byte == whole.transport_offset + std::size_t{4} ||
                             byte >= whole.transport_offset + whole.transport.size() + 4;
        ASSERT_TRUE(variant) << "bit " << bit;
      }
      frame[bit / 8] ^= std::byte(1u << bit % 8);
    }
  }
}

TEST(RoceWire, no_bytes_lead_the_decoders_out_of_their_span) {
  std::mt19937 random(7);
  const auto frames = golden();
  for (int round = 0; round < 20000; ++round) {
    Bytes frame = frames[random() % frames.size()];
    frame.resize(random() % (frame.size() + 1));
    for (int i = 0; i < 4 && !frame.empty(); ++i) frame[random() % frame.size()] = std::byte(random());
    const Bytes exact(frame);  // sized exactly, so that the address sanitizer detects an over-read
    const Frame parsed = parse(exact);
    if (parsed.kind != FrameKind::Roce) continue;
    icrc_correct(parsed, exact);
    if (const auto packet = decode(parsed.transport);
        packet && packet->bth.opcode == Opcode::DatagramSendOnly)
      cm::decode(packet->payload);
  }
}

TEST(RoceWire, ipv6_and_vlan_headers_read_back) {
  for (const bool v6 : {false, true})
    for (const std::uint16_t vlan : {kNoVlan, std::uint16_t{42}}) {
      Route route;
      route.vlan = vlan;
      route.source = v6 ? PeerAddress{{0xfd, 1}} : PeerAddress::from_ipv4(192, 0, 2, 1);
      route.destination = v6 ? PeerAddress{{0xfd, 2}} : PeerAddress::from_ipv4(192, 0, 2, 2);
      Packet packet;
      packet.bth.opcode = Opcode::Acknowledge;
      packet.kind = traits(packet.bth.opcode);
      packet.bth.destination_qp = 0x123456;
      packet.aeth = {Syndrome::RnrNak, 12, 0xABCDEF};
      const std::size_t network = network_header_bytes(route);
      Bytes bytes(network + packet.kind.header_bytes + kIcrcBytes);
      write_network_headers(route, packet.kind.header_bytes + kIcrcBytes, bytes.data());
      encode_headers(packet, bytes.data() + network);
      const Frame parsed = parse(bytes);
      ASSERT_EQ(parsed.kind, FrameKind::Roce);
      EXPECT_EQ(parsed.vlan, vlan);
      EXPECT_EQ(parsed.source, route.source);
      EXPECT_EQ(parsed.destination, route.destination);
      EXPECT_EQ(parsed.traffic_class, kEcnCapable);
      const auto decoded = decode(parsed.transport);
      ASSERT_TRUE(decoded);
      EXPECT_EQ(decoded->bth.destination_qp, 0x123456u);
      EXPECT_EQ(decoded->aeth.syndrome, Syndrome::RnrNak);
      EXPECT_EQ(decoded->aeth.value, 12);
      EXPECT_EQ(decoded->aeth.msn, 0xABCDEFu);
    }
}

TEST(RoceWire, sequence_numbers_wrap) {
  EXPECT_EQ(psn_add(0xFFFFFF, 1), 0u);
  EXPECT_EQ(psn_distance(0xFFFFF0, 0x10), 0x20);
  EXPECT_EQ(psn_distance(0x10, 0xFFFFF0), -0x20);
  EXPECT_EQ(psn_distance(5, 5), 0);
  EXPECT_EQ(rnr_timer_ns(1), 10'000u);
  EXPECT_EQ(rnr_timer_ns(0), 655'360'000u);
  EXPECT_EQ(rnr_timer_ns(31), 491'520'000u);
}

}  // namespace
}  // namespace sluice::rdma::softroce
