// SPDX-License-Identifier: Apache-2.0
//
// Frames byte by byte: malformed frames, offsets of the parts, and frames that the driver writes.
#include "pmd/softroce/frame.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string_view>
#include <vector>

#include "pmd/softroce/byte_order.h"
#include "pmd/softroce/header_template.h"
#include "pmd/softroce/wire.h"
#include "tests/unit/pmd/softroce/hex.h"

namespace sluice::rdma::softroce {
namespace {

const PeerAddress kFour = PeerAddress::from_ipv4(192, 0, 2, 1);
const PeerAddress kOtherFour = PeerAddress::from_ipv4(192, 0, 2, 2);
const PeerAddress kSix{{0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}};
const PeerAddress kOtherSix{{0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2}};

Route route(bool six, std::uint16_t vlan = kNoVlan) {
  return {.source_mac = {2, 0, 0, 0, 0, 1},
          .destination_mac = {2, 0, 0, 0, 0, 2},
          .vlan = vlan,
          .source = six ? kSix : kFour,
          .destination = six ? kOtherSix : kOtherFour,
          .udp_source_port = 0xC123,
          .traffic_class = 0x6A,
          .hop_limit = 63};
}

/// Returns network headers followed by `transport` bytes; the last four of them take the place of the CRC.
Bytes frame_of(const Route& way, std::size_t transport) {
  Bytes frame(network_header_bytes(way) + transport);
  write_network_headers(way, transport, frame.data());
  return frame;
}

/// Recomputes the checksum of a changed IPv4 header.
void mend_checksum(Bytes& frame) {
  store_be16(frame.data() + 24, 0);
  store_be16(frame.data() + 24, internet_checksum(std::span(frame).subspan(14, 20)));
}

TEST(FrameHeaders, ipv4_with_its_bytes) {
  EXPECT_EQ(network_header_bytes(route(false)), 42u);
  const Bytes frame = frame_of(route(false), 16);
  EXPECT_EQ(Bytes(frame.begin(), frame.begin() + 42), from_hex("020000000002"
                                                               "020000000001"
                                                               "0800"
                                                               "456a002c000040003f11b753c0000201c0000202"
                                                               "c12312b700180000"));
  EXPECT_EQ(internet_checksum(std::span(frame).subspan(14, 20)), 0);
}

TEST(FrameHeaders, ipv6_in_a_vlan_with_its_bytes) {
  EXPECT_EQ(network_header_bytes(route(true)), 62u);
  EXPECT_EQ(network_header_bytes(route(true, 7)), 66u);
  const Bytes frame = frame_of(route(true, 7), 16);
  EXPECT_EQ(Bytes(frame.begin(), frame.begin() + 66), from_hex("020000000002"
                                                               "020000000001"
                                                               "81000007"
                                                               "86dd"
                                                               "66a000000018113f"
                                                               "20010db8000000000000000000000001"
                                                               "20010db8000000000000000000000002"
                                                               "c12312b700180000"));
}

TEST(FrameHeaders, are_the_same_in_a_buffer_that_was_used_before) {
  for (const bool six : {false, true})
    for (const std::uint16_t vlan : {kNoVlan, std::uint16_t{7}}) {
      const std::size_t bytes = network_header_bytes(route(six, vlan));
      Bytes used(bytes, std::byte{0xA5});
      write_network_headers(route(six, vlan), 16, used.data());
      const Bytes fresh = frame_of(route(six, vlan), 16);
      EXPECT_EQ(used, Bytes(fresh.begin(), fresh.begin() + static_cast<std::ptrdiff_t>(bytes)));
    }
}

TEST(HeaderTemplates, write_what_is_written_field_by_field) {
  for (const bool six : {false, true})
    for (const std::uint16_t vlan : {kNoVlan, std::uint16_t{7}}) {
      const HeaderTemplate headers(route(six, vlan));
      ASSERT_EQ(headers.bytes(), network_header_bytes(route(six, vlan)));
      EXPECT_EQ(headers.network_at(), vlan == kNoVlan ? kEthernetBytes : kEthernetBytes + kVlanBytes);
      for (std::size_t transport = kBthBytes; transport < 9000; ++transport) {
        Bytes made(HeaderTemplate::kRoom);
        headers.write(transport, made.data());
        made.resize(headers.bytes());
        Bytes expected = frame_of(route(six, vlan), transport);
        expected.resize(headers.bytes());
        ASSERT_EQ(made, expected) << six << ' ' << vlan << ' ' << transport;
      }
    }
}

TEST(FrameParse, what_ends_within_its_headers_is_malformed) {
  EXPECT_EQ(parse(Bytes(13)).kind, FrameKind::Malformed);
  EXPECT_EQ(parse(Bytes(14)).kind, FrameKind::Other);
  for (const bool six : {false, true})
    for (const std::uint16_t vlan : {kNoVlan, std::uint16_t{7}}) {
      const Bytes whole = frame_of(route(six, vlan), 16);
      for (std::size_t bytes = 0; bytes < whole.size(); ++bytes)
        EXPECT_EQ(parse(Bytes(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(bytes))).kind,
                  FrameKind::Malformed)
            << six << ' ' << bytes;
      const Frame frame = parse(whole);
      EXPECT_EQ(frame.kind, FrameKind::Roce);
      EXPECT_EQ(frame.vlan, vlan);
      EXPECT_EQ(frame.network_offset, vlan == kNoVlan ? 14 : 18);
      EXPECT_EQ(frame.transport_offset, network_header_bytes(route(six, vlan)));
      EXPECT_EQ(frame.udp_source_port, 0xC123);
      EXPECT_EQ(frame.traffic_class, 0x6A);
      EXPECT_EQ(frame.protocol, 17);
      EXPECT_EQ(frame.source, six ? kSix : kFour);
      EXPECT_EQ(frame.destination, six ? kOtherSix : kOtherFour);
      EXPECT_EQ(frame.transport.data(), whole.data() + frame.transport_offset);
      EXPECT_EQ(frame.transport.size(), 12u);  // without the CRC
    }
}

TEST(FrameParse, padding_behind_the_packet_is_no_part_of_it) {
  for (const bool six : {false, true}) {
    Bytes frame = frame_of(route(six), 16);
    frame.resize(frame.size() + 9);
    EXPECT_EQ(parse(frame).transport.size(), 12u);
    frame[network_header_bytes(route(six)) - 5] = std::byte{99};  // no longer the RoCEv2 port
    if (!six) mend_checksum(frame);
    EXPECT_EQ(parse(frame).kind, six ? FrameKind::Ipv6 : FrameKind::Ipv4);
    EXPECT_EQ(parse(frame).transport.size(), 24u);
  }
}

TEST(FrameParse, ipv4_headers_that_rocev2_does_not_have_are_malformed) {
  const auto changed = [](std::size_t at, std::uint8_t value) {
    Bytes frame = frame_of(route(false), 16);
    frame[at] = std::byte{value};
    mend_checksum(frame);
    return parse(frame).kind;
  };
  EXPECT_EQ(changed(14, 0x45), FrameKind::Roce);
  EXPECT_EQ(changed(14, 0x46), FrameKind::Other);      // options
  EXPECT_EQ(changed(14, 0x44), FrameKind::Malformed);  // shorter than its own header
  EXPECT_EQ(changed(14, 0x55), FrameKind::Malformed);
  EXPECT_EQ(changed(20, 0x00), FrameKind::Roce);       // may be fragmented, but is not
  EXPECT_EQ(changed(20, 0x60), FrameKind::Malformed);  // first fragment of several
  EXPECT_EQ(changed(20, 0x41), FrameKind::Malformed);  // a later fragment
  EXPECT_EQ(changed(21, 0x01), FrameKind::Malformed);
  EXPECT_EQ(changed(17, 19), FrameKind::Malformed);  // shorter than its header
  EXPECT_EQ(changed(17, 20), FrameKind::Ipv4);       // nothing but a header
  EXPECT_EQ(changed(17, 45), FrameKind::Malformed);  // longer than the frame
  Bytes wrong = frame_of(route(false), 16);
  wrong[24] ^= std::byte{1};
  EXPECT_EQ(parse(wrong).kind, FrameKind::Malformed);
}

TEST(FrameParse, ipv6_of_another_version_is_malformed) {
  Bytes frame = frame_of(route(true), 16);
  frame[14] = std::byte{0x46};
  EXPECT_EQ(parse(frame).kind, FrameKind::Malformed);
}

TEST(FrameParse, udp_lengths_leave_room_for_a_transport_header_and_its_crc) {
  const auto with_length = [](std::uint16_t length) {
    Bytes frame = frame_of(route(true), 20);
    store_be16(frame.data() + 58, length);
    return parse(frame);
  };
  EXPECT_EQ(with_length(23).kind, FrameKind::Malformed);
  EXPECT_EQ(with_length(24).kind, FrameKind::Roce);
  EXPECT_EQ(with_length(24).transport.size(), 12u);
  EXPECT_EQ(with_length(28).transport.size(), 16u);
  EXPECT_EQ(with_length(29).kind, FrameKind::Malformed);
  // A length too short for UDP is not RoCE, but it is not malformed.
  Bytes frame = frame_of(route(true), 16);
  store_be16(frame.data() + 18, 7);
  EXPECT_EQ(parse(frame).kind, FrameKind::Ipv6);
}

TEST(FrameParse, tags_and_other_protocols) {
  Bytes frame = frame_of(route(false, 7), 16);
  frame[14] = std::byte{0xF0};  // the priority and drop bits are not part of the identifier
  EXPECT_EQ(parse(frame).vlan, 7);
  EXPECT_EQ(parse(Bytes(frame.begin(), frame.begin() + 17)).kind, FrameKind::Malformed);
  Bytes arp(42);
  store_be16(arp.data() + 12, 0x0806);
  EXPECT_EQ(parse(arp).kind, FrameKind::Arp);
  EXPECT_EQ(parse(arp).network_offset, 14);
}

TEST(InvariantCrc, what_routers_change_is_not_covered_and_everything_else_is) {
  for (const bool six : {false, true}) {
    const Bytes whole = frame_of(route(six), 16);
    const std::size_t network = network_header_bytes(route(six)) - kEthernetBytes;
    const std::uint32_t expected = icrc_start(whole.data() + kEthernetBytes, network, kBthBytes);
    for (std::size_t at = 0; at < network + kBthBytes; ++at) {
      Bytes frame = whole;
      frame[kEthernetBytes + at] ^= std::byte{0x55};
      if (six && at == 0) frame[kEthernetBytes] = whole[kEthernetBytes] ^ std::byte{0x05};  // the class alone
      const bool four_varies = !six && (at == 1 || at == 8 || at == 10 || at == 11);
      const bool six_varies = six && (at <= 3 || at == 7);
      const bool varies =
          four_varies || six_varies || at == network - 2 || at == network - 1 || at == network + 4;
      EXPECT_EQ(icrc_start(frame.data() + kEthernetBytes, network, kBthBytes) == expected, varies)
          << six << " byte " << at;
    }
  }
}

TEST(InvariantCrc, a_packet_with_its_own_is_right) {
  for (const bool six : {false, true}) {
    Bytes frame = frame_of(route(six), 20);
    const std::size_t network = network_header_bytes(route(six));
    std::uint32_t crc = icrc_start(frame.data() + kEthernetBytes, network - kEthernetBytes, kBthBytes);
    crc = icrc_continue(crc, std::span(frame).subspan(network + kBthBytes, 4));
    const auto check = icrc_bytes(crc);
    std::copy(check.begin(), check.end(), frame.end() - 4);
    EXPECT_TRUE(icrc_correct(parse(frame), frame));
    for (std::size_t at = frame.size() - 8; at < frame.size(); ++at) {
      frame[at] ^= std::byte{1};
      EXPECT_FALSE(icrc_correct(parse(frame), frame)) << at;
      frame[at] ^= std::byte{1};
    }
  }
}

TEST(Checksum, of_the_example_of_rfc_1071_and_of_odd_and_long_parts) {
  EXPECT_EQ(internet_checksum(from_hex("0001f203f4f5f6f7")), 0x220D);
  EXPECT_EQ(internet_checksum(from_hex("0001f2")), 0xFFFF - 0xF201);
  EXPECT_EQ(internet_checksum({}), 0xFFFF);
  EXPECT_EQ(internet_checksum(from_hex("0001"), 0x1FFFE), 0xFFFE);  // carries twice
  EXPECT_EQ(internet_checksum(from_hex("f203"), 0x00010000), 0xFFFF - 0xF204);
}

TEST(TransportHeaders, every_opcode_reads_back_what_was_written) {
  std::mt19937 random(3);
  for (int number = 0; number < 256; ++number) {
    Packet packet;
    packet.bth.opcode = static_cast<Opcode>(number);
    packet.kind = traits(packet.bth.opcode);
    if (!packet.kind.known) continue;
    packet.bth.solicited = random() & 1;
    packet.bth.migrated = random() & 1;
    packet.bth.pad_bytes = random() & 3;
    packet.bth.partition_key = static_cast<std::uint16_t>(random());
    packet.bth.fecn = random() & 1;
    packet.bth.becn = random() & 1;
    packet.bth.destination_qp = random() & 0xFFFFFF;
    packet.bth.ack_request = random() & 1;
    packet.bth.psn = random() & 0xFFFFFF;
    if (packet.kind.has_deth)
      packet.deth = {static_cast<std::uint32_t>(random()), static_cast<std::uint32_t>(random()) & 0xFFFFFF};
    if (packet.kind.has_reth)
      packet.reth = {std::uint64_t{random()} << 32 | random(), static_cast<std::uint32_t>(random()),
                     static_cast<std::uint32_t>(random())};
    if (packet.kind.has_aeth)
      packet.aeth = {static_cast<Syndrome>(random() % 4), static_cast<std::uint8_t>(random() % 32),
                     static_cast<std::uint32_t>(random()) & 0xFFFFFF};
    if (packet.kind.has_immediate) packet.immediate = static_cast<std::uint32_t>(random());
    if (packet.kind.has_ieth) packet.invalidate_rkey = static_cast<std::uint32_t>(random());
    Bytes bytes(kMaxTransportHeaderBytes);
    const std::size_t headers = encode_headers(packet, bytes.data());
    ASSERT_EQ(headers, packet.kind.header_bytes) << number;
    bytes.resize(headers + 5 + packet.bth.pad_bytes);
    const auto read = decode(bytes);
    ASSERT_TRUE(read) << number;
    EXPECT_EQ(read->bth.solicited, packet.bth.solicited);
    EXPECT_EQ(read->bth.migrated, packet.bth.migrated);
    EXPECT_EQ(read->bth.pad_bytes, packet.bth.pad_bytes);
    EXPECT_EQ(read->bth.partition_key, packet.bth.partition_key);
    EXPECT_EQ(read->bth.fecn, packet.bth.fecn);
    EXPECT_EQ(read->bth.becn, packet.bth.becn);
    EXPECT_EQ(read->bth.destination_qp, packet.bth.destination_qp);
    EXPECT_EQ(read->bth.ack_request, packet.bth.ack_request);
    EXPECT_EQ(read->bth.psn, packet.bth.psn);
    EXPECT_EQ(read->deth.queue_key, packet.deth.queue_key);
    EXPECT_EQ(read->deth.source_qp, packet.deth.source_qp);
    EXPECT_EQ(read->reth.address, packet.reth.address);
    EXPECT_EQ(read->reth.rkey, packet.reth.rkey);
    EXPECT_EQ(read->reth.length, packet.reth.length);
    EXPECT_EQ(read->aeth.syndrome, packet.aeth.syndrome);
    EXPECT_EQ(read->aeth.value, packet.aeth.value);
    EXPECT_EQ(read->aeth.msn, packet.aeth.msn);
    EXPECT_EQ(read->immediate, packet.immediate);
    EXPECT_EQ(read->invalidate_rkey, packet.invalidate_rkey);
    EXPECT_EQ(read->payload.data(), bytes.data() + headers);
    EXPECT_EQ(read->payload.size(), 5u);
    bytes.resize(headers + packet.bth.pad_bytes);
    ASSERT_TRUE(decode(bytes)) << number;
    EXPECT_TRUE(decode(bytes)->payload.empty());
    bytes.pop_back();
    EXPECT_FALSE(decode(bytes)) << number;
  }
}

TEST(TransportHeaders, unknown_opcodes_and_versions_are_not_read) {
  Bytes bytes(64);
  for (const int opcode : {0x12, 0x24, 0xFF}) {
    bytes[0] = std::byte(opcode);
    EXPECT_FALSE(decode(bytes)) << opcode;
  }
  bytes[0] = std::byte{0x1F};  // reserved opcode of reliable connections, which must be refused
  ASSERT_TRUE(decode(bytes));
  EXPECT_TRUE(decode(bytes)->kind.unsupported);
  bytes[0] = std::byte{4};  // Send Only
  EXPECT_TRUE(decode(bytes));
  bytes[1] = std::byte{1};
  EXPECT_FALSE(decode(bytes));
}

TEST(TransportHeaders, rnr_timers_are_those_of_the_specification) {
  // Hundredths of a millisecond, from InfiniBand, table 46.
  constexpr std::uint64_t kHundredths[] = {
      65536, 1,   2,   3,   4,    6,    8,    12,   16,   24,   32,   48,    64,    96,    128,   192,
      256,   384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152};
  for (std::uint8_t code = 0; code < 32; ++code) {
    EXPECT_EQ(rnr_timer_ns(code), kHundredths[code] * 10'000) << int{code};
    EXPECT_EQ(rnr_timer_ns(code), code == 0 ? rnr_timer_ns(0) : rnr_timer_ns(code | 0x20)) << int{code};
  }
}

}  // namespace
}  // namespace sluice::rdma::softroce
