// SPDX-License-Identifier: Apache-2.0
//
// Expected headers against the general path: frames that are built, with each bit changed.
#include "pmd/softroce/expected_headers.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <vector>

#include "pmd/softroce/byte_order.h"
#include "tests/unit/pmd/softroce/expected_headers_check.h"
#include "tests/unit/pmd/softroce/hex.h"

namespace sluice::rdma::softroce {
namespace {

struct Shape {
  bool six;
  std::uint16_t vlan;
};
constexpr Shape kShapes[] = {{false, kNoVlan}, {false, 7}, {true, kNoVlan}, {true, 7}};

Bytes frame_of(const Shape& shape, Opcode opcode, std::uint32_t psn, std::size_t payload_bytes) {
  PeerAddress one = PeerAddress::from_ipv4(192, 0, 2, 1), two = PeerAddress::from_ipv4(192, 0, 2, 2);
  if (shape.six) {
    one = {{0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}};
    two = {{0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2}};
  }
  const Route route{.source_mac = {2, 0, 0, 0, 0, 1},
                    .destination_mac = {2, 0, 0, 0, 0, 2},
                    .vlan = shape.vlan,
                    .source = one,
                    .destination = two};
  Packet packet;
  packet.bth.opcode = opcode;
  packet.bth.psn = psn;
  packet.bth.destination_qp = 0x123458;
  packet.reth = {0x1000, 77, static_cast<std::uint32_t>(payload_bytes)};
  packet.aeth.msn = 5;
  packet.immediate = 0xABCDEF01;
  packet.invalidate_rkey = 0x55;
  const TransportHeaders headers = encoded(packet, payload_bytes);
  const std::size_t transport = headers.count + payload_bytes + headers.padding_bytes + kIcrcBytes;
  Bytes frame(network_header_bytes(route) + transport);
  write_network_headers(route, transport, frame.data());
  std::memcpy(frame.data() + network_header_bytes(route), headers.bytes.data(), headers.count);
  return frame;
}

TEST(ExpectedHeaders, the_next_packets_of_all_opcodes_of_a_connection_match) {
  for (const Shape& shape : kShapes) {
    const Bytes first = frame_of(shape, Opcode::SendOnly, 1, 64);
    for (unsigned code = 0; code < 256; ++code) {
      const auto opcode = static_cast<Opcode>(code);
      const bool of_connection = code <= 0x11 || code == 0x16 || code == 0x17;
      EXPECT_EQ(compare(first, frame_of(shape, opcode, 0xFFFFFF, 100)),
                of_connection ? Expectation::Agrees : Expectation::NotMatched)
          << code;
    }
  }
}

TEST(ExpectedHeaders, a_short_frame_is_not_compared) {
  for (const Shape& shape : kShapes) {
    const Bytes first = frame_of(shape, Opcode::SendOnly, 1, 64);
    for (std::size_t bytes = 0; bytes < first.size(); ++bytes) {
      const Bytes exact(first.begin(), first.begin() + static_cast<std::ptrdiff_t>(bytes));
      EXPECT_EQ(compare(first, exact), Expectation::NotMatched) << bytes;  // it ends before its IP length
    }
    Bytes padded = first;  // as Ethernet pads short frames
    padded.resize(first.size() + 9);
    EXPECT_EQ(compare(first, padded), Expectation::Agrees);
  }
}

/// A changed bit either prevents a match or has the same meaning on both paths.
TEST(ExpectedHeaders, each_changed_bit_means_the_same_on_both_paths) {
  for (const Shape& shape : kShapes) {
    const Bytes first = frame_of(shape, Opcode::WriteOnly, 1, 40);
    Bytes next = frame_of(shape, Opcode::WriteOnly, 2, 40);
    std::map<Expectation, int> seen;
    for (std::size_t bit = 0; bit < next.size() * 8; ++bit) {
      next[bit / 8] ^= std::byte(1u << bit % 8);
      const Expectation found = compare(first, next);
      ASSERT_NE(found, Expectation::Disagrees) << "bit " << bit;
      ++seen[found];
      next[bit / 8] ^= std::byte(1u << bit % 8);
    }
    EXPECT_GT(seen[Expectation::Agrees], 100);
    EXPECT_GT(seen[Expectation::NotMatched], 200);
  }
}

TEST(ExpectedHeaders, fields_of_the_path_differ_in_no_packet_that_matches) {
  for (const Shape& shape : kShapes) {
    const Bytes first = frame_of(shape, Opcode::SendOnly, 1, 64);
    const std::size_t network = kEthernetBytes + (shape.vlan == kNoVlan ? 0 : kVlanBytes);
    const std::size_t transport = first.size() - 64 - kIcrcBytes - kBthBytes;
    std::vector<std::size_t> fields{0, 5, 6, 11, 13};  // both link addresses and the type
    if (shape.vlan != kNoVlan) fields.insert(fields.end(), {14, 15});
    fields.push_back(network + 1);  // congestion marks
    fields.push_back(transport - kUdpBytes);
    fields.push_back(transport - kUdpBytes + 3);
    for (const std::size_t in_bth : {2u, 3u, 4u, 5u, 6u, 7u}) fields.push_back(transport + in_bth);
    for (const std::size_t at : fields) {
      Bytes next = frame_of(shape, Opcode::SendOnly, 2, 64);
      next[at] ^= std::byte{1};
      if (!shape.six) {
        store_be16(next.data() + network + 10, 0);
        store_be16(next.data() + network + 10, internet_checksum(std::span(next).subspan(network, 20)));
      }
      EXPECT_EQ(compare(first, next), Expectation::NotMatched) << at;
    }
  }
}

TEST(ExpectedHeaders, nothing_matches_before_a_packet_and_after_forgetting) {
  ExpectedHeaders expected;
  const Bytes frame = frame_of(kShapes[0], Opcode::SendOnly, 1, 64);
  EXPECT_FALSE(expected.match<kLayoutV4>(frame.data()));
  expected.learn(frame);
  EXPECT_TRUE(expected.match<kLayoutV4>(frame.data()));
  expected.forget();
  EXPECT_FALSE(expected.match<kLayoutV4>(frame.data()));
}

}  // namespace
}  // namespace sluice::rdma::softroce
