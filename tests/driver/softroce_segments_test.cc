// SPDX-License-Identifier: Apache-2.0
//
// Packets as the ethdev receives them: which parts lie in registered memory, which are copied, and the
// reference counts that its driver relies on.
#include <rte_mbuf.h>

#include "tests/driver/raw_peer.h"

namespace sluice::rdma::conformance {
namespace {

using namespace softroce;

class Segments : public RawPeerTest {
 protected:
  void SetUp() override {
    open();
    attributes_.path_mtu = 4096;
    QueuePairLimits limits;
    limits.max_send_sge = 32;
    connect(own, kPeerQp, limits);
    const Bytes data = pattern(8192);
    std::copy(data.begin(), data.end(), own.memory.bytes.begin());
  }
  /// Returns the one packet of a Send of these pieces. The caller frees it.
  rte_mbuf* packet_of(const std::vector<Sge>& pieces) {
    EXPECT_TRUE(own.post(SendOpcode::Send, 1, pieces));
    device().flush();
    return wire_->take();
  }
};

TEST_F(Segments, a_large_payload_is_handed_over_where_it_lies) {
  for (int time = 0; time < 3; ++time) {
    rte_mbuf* packet = packet_of({own.sge(1000, 3001)});
    ASSERT_NE(packet, nullptr);
    ASSERT_EQ(packet->nb_segs, 3u);  // headers, payload, pad and invariant CRC
    EXPECT_EQ(rte_pktmbuf_mtod(packet->next, std::byte*), own.memory.bytes.data() + 1000);
    const Sent read(bytes_of(packet));
    EXPECT_EQ(read.packet.payload.size(), 3001u);
    EXPECT_EQ(packet->pkt_len, read.bytes.size());
    rte_pktmbuf_free(packet);
  }
}

/// An ethdev driver that keeps or shares a packet counts references, so there has to be exactly one.
TEST_F(Segments, each_piece_of_registered_memory_has_one_reference) {
  for (int time = 0; time < 3; ++time) {
    rte_mbuf* packet = packet_of({own.sge(0, 600), own.sge(1000, 600)});
    ASSERT_NE(packet, nullptr);
    ASSERT_EQ(packet->nb_segs, 4u);
    for (rte_mbuf* segment = packet->next; segment != nullptr; segment = segment->next) {
      ASSERT_TRUE(RTE_MBUF_HAS_EXTBUF(segment));
      EXPECT_EQ(rte_mbuf_ext_refcnt_read(segment->shinfo), 1u);
    }
    rte_pktmbuf_free(packet);
  }
}

TEST_F(Segments, a_payload_of_many_pieces_is_copied_before_a_packet_has_more_than_six_segments) {
  for (std::uint32_t pieces = 1; pieces <= 20; ++pieces) {
    std::vector<Sge> sges;
    Bytes expected;
    for (std::uint32_t i = 0; i < pieces; ++i) {
      sges.push_back(own.sge(i * 300, 200));
      const auto piece = own.memory.bytes.subspan(i * 300, 200);
      expected.insert(expected.end(), piece.begin(), piece.end());
    }
    rte_mbuf* packet = packet_of(sges);
    ASSERT_NE(packet, nullptr);
    EXPECT_LE(packet->nb_segs, 6u) << pieces;
    if (pieces == 4) {
      EXPECT_EQ(packet->nb_segs, 6u);
    }
    EXPECT_TRUE(std::ranges::equal(Sent(bytes_of(packet)).packet.payload, expected)) << pieces;
    rte_pktmbuf_free(packet);
  }
}

TEST_F(Segments, a_port_that_copies_hands_over_one_segment) {
  open([](PortConfig& config) { config.transmit_in_place = false; });
  attributes_.path_mtu = 4096;
  connect(own);
  rte_mbuf* packet = packet_of({own.sge(0, 4096)});
  ASSERT_NE(packet, nullptr);
  EXPECT_EQ(packet->nb_segs, 1u);
  rte_pktmbuf_free(packet);
}

}  // namespace
}  // namespace sluice::rdma::conformance
